from __future__ import annotations

import json
import mmap
import os
import socket
from pathlib import Path

import pytest

from preflight.errors import UnreadableFact
from preflight.system.installed import installed_software
from preflight.system.interfaces import network_interfaces
from preflight.system.kernel_queries import LIVE_QUESTIONS, is_reported, live_machine
from preflight.system.shm_segments import nccl_segments


@pytest.mark.parametrize("question", LIVE_QUESTIONS)
def test_every_answer_is_json_or_a_reason(question: str) -> None:
    try:
        answer = live_machine().ask(question)
    except UnreadableFact as error:
        assert str(error)
        return
    assert json.loads(json.dumps(answer)) == answer


def test_interfaces_come_in_the_kernels_order_under_the_kernels_names() -> None:
    expected = [(index, name) for index, name in sorted(socket.if_nameindex())]
    assert [(entry["index"], entry["name"]) for entry in network_interfaces()] == expected


def test_the_loopback_interface_has_the_loopback_address() -> None:
    loopback = next(entry for entry in network_interfaces() if entry["name"] == "lo")
    assert "127.0.0.1" in loopback["addresses"] or not loopback["flags"] & 1


def test_only_variables_that_the_libraries_read_are_reported() -> None:
    names = ("NCCL_DEBUG", "TP_SOCKET_IFNAME", "OMP_NUM_THREADS", "HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "PATH")
    assert [name for name in names if is_reported(name)] == ["NCCL_DEBUG", "TP_SOCKET_IFNAME", "OMP_NUM_THREADS"]


def test_a_torch_that_is_not_installed_is_told_as_such() -> None:
    assert "not installed" in installed_software("a_package_that_nobody_wrote")["torch"]["unreadable"]


def _shm(tmp_path: Path) -> Path:
    shm = tmp_path / "shm"
    shm.mkdir()
    (shm / "nccl-abc").write_bytes(b"x" * 4096)
    (shm / "other").touch()
    os.chmod(shm / "nccl-abc", 0o600)
    return shm


def _proc(tmp_path: Path, namespace: str = "pid:[4026531836]") -> Path:
    """A /proc with one process of the file's owner, which maps and opens nothing."""
    process = tmp_path / "proc" / "7"
    (process / "fd").mkdir(parents=True)
    (process / "maps").touch()
    (process / "status").write_text(f"Name:\tx\nUid:\t{os.geteuid()}\t1\t1\t1\n")
    (tmp_path / "proc" / "self" / "ns").mkdir(parents=True)
    os.symlink(namespace, tmp_path / "proc" / "self" / "ns" / "pid")
    return tmp_path / "proc"


def _stale(shm: Path, proc: Path) -> list[bool]:
    return [segment["stale"] for segment in nccl_segments(str(shm), str(proc))]


def test_a_segment_that_no_process_has_is_stale(tmp_path: Path) -> None:
    found = nccl_segments(str(_shm(tmp_path)), str(_proc(tmp_path)))
    assert [(segment["name"], segment["stale"]) for segment in found] == [("nccl-abc", True)]
    assert found[0]["size_bytes"] >= 4096


def test_a_segment_that_a_process_has_mapped_is_in_use(tmp_path: Path) -> None:
    shm, proc = _shm(tmp_path), _proc(tmp_path)
    status = os.stat(shm / "nccl-abc")
    device = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}"
    line = f"7f0000000000-7f0000001000 rw-s 00000000 {device} {status.st_ino}   /dev/shm/nccl-abc\n"
    (proc / "7" / "maps").write_text(line)
    assert _stale(shm, proc) == [False]


def test_a_segment_of_the_live_dev_shm_is_in_use_while_it_is_mapped() -> None:
    path = f"/dev/shm/nccl-preflight-test-{os.getpid()}"
    with open(path, "w+b") as file:
        try:
            file.truncate(4096)
            with mmap.mmap(file.fileno(), 4096):
                found = {segment["name"]: segment["stale"] for segment in nccl_segments()}
        finally:
            os.unlink(path)
    assert found[os.path.basename(path)] is False


def test_a_segment_that_a_process_has_open_is_in_use(tmp_path: Path) -> None:
    shm, proc = _shm(tmp_path), _proc(tmp_path)
    os.symlink(shm / "nccl-abc", proc / "7" / "fd" / "3")
    assert _stale(shm, proc) == [False]


def test_a_segment_is_not_stale_where_another_pid_namespace_may_use_it(tmp_path: Path) -> None:
    assert _stale(_shm(tmp_path), _proc(tmp_path, "pid:[4026532000]")) == [False]


def test_a_segment_is_not_stale_where_its_owners_process_cannot_be_looked_into(tmp_path: Path) -> None:
    proc = _proc(tmp_path)
    (proc / "7" / "maps").unlink()
    (proc / "7" / "maps").mkdir()  # reading it fails for root too, unlike with missing permissions
    assert _stale(_shm(tmp_path), proc) == [False]


def test_a_process_that_has_ended_uses_nothing(tmp_path: Path) -> None:
    proc = _proc(tmp_path)
    (proc / "7" / "maps").unlink()
    assert _stale(_shm(tmp_path), proc) == [True]
