"""`--history DIR`: which reports of a folder are read, and which folders; whatever lies there, the check goes on."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from preflight.check.inputs import MOST_REPORTS, read_history
from preflight.errors import UsageError
from preflight.model.input_limits import REPORT
from preflight.model.report import Report
from preflight.show.json_document import render_json
from tests.node_facts import gpu_node
from tests.reports import report_of

NODE = gpu_node(2)
A, B, OTHERS = "GPU-00000000", "GPU-00000001", "GPU-0000000f"
NOBODY = 65534


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "reports"
    path.mkdir(mode=0o755)
    return path


def report(minute: int = 0, *tried: str, **changes: Any) -> Report:
    return report_of(created_at=f"2026-10-05T12:{minute:02}:00+00:00", parts_tried=tried or (A, B), **changes)


def put(folder: Path, name: str, text: str, age_s: float = 0) -> Path:
    path = folder / name
    path.write_text(text)
    path.chmod(0o644)
    os.utime(path, (time.time() - age_s,) * 2)
    return path


def read(folder: Path) -> tuple[Report, ...]:
    return read_history(str(folder), NODE, is_quiet=False)


def test_the_newest_reports_that_tried_this_node_s_gpus_are_read(folder: Path) -> None:
    reports = [report(minute) for minute in range(30)]
    for minute, each in enumerate(reports):
        put(folder, f"{minute}.json", render_json(each), age_s=1000 - minute)
        put(folder, f"of another node {minute}.json", render_json(report(minute, OTHERS)))
    assert read(folder) == tuple(reports[-MOST_REPORTS:])


def test_the_order_is_that_of_the_reports_and_not_of_the_files(folder: Path) -> None:
    for minute in range(3):
        put(folder, f"{minute}.json", render_json(report(minute)), age_s=minute)
    assert [each.created_at[14:16] for each in read(folder)] == ["00", "01", "02"]


@pytest.mark.parametrize("host", ["n1", "another", ""])
def test_a_pod_of_another_name_knows_its_node_s_reports_by_the_gpus(folder: Path, host: str) -> None:
    put(folder, "a.json", render_json(report(nodes=(replace(NODE, host=host),))))
    assert len(read(folder)) == 1


def test_a_copy_of_a_report_is_no_other_run(folder: Path) -> None:
    for name in ("a.json", "copy.json", "of-json.json"):
        put(folder, name, render_json(report()))
    assert read(folder) == (report(),)


def test_what_a_killed_or_interrupted_run_left_is_no_evidence(folder: Path) -> None:
    put(folder, "a.json", render_json(replace(report(nodes=(NODE,)), parts_tried=())))
    assert read(folder) == ()


def other_users(path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can make another user's file")
    os.chown(path, NOBODY, NOBODY)


def fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def link(path: Path) -> None:
    path.unlink()
    path.symlink_to("/etc/shadow")


def large(path: Path) -> None:
    os.truncate(path, 1 << 30)


LEFT_OUT: dict[str, tuple[Callable[[Path], object], str]] = {
    "half of it": (lambda path: os.truncate(path, 3000), "x.json: not JSON"),
    "another schema": (
        lambda path: path.write_text(path.read_text().replace('"schema_version": 1', '"schema_version": 2')),
        "x.json: schema_version is 2",
    ),
    "of another kind": (lambda path: path.write_text(json.dumps({"gpu": A})), "x.json: no report"),
    "others may write it": (lambda path: path.chmod(0o646), "x.json: other users may write it"),
    "another user's": (other_users, "x.json: it belongs to another user (uid 65534)"),
    "1 GiB": (large, "x.json: beyond the 32 MiB that are read"),
    "without a GPU of ours": (lambda path: path.write_text("{"), ""),
    "a FIFO": (fifo, ""),
    "a link": (link, ""),
    "gone": (Path.unlink, ""),
}


@pytest.mark.parametrize("what", LEFT_OUT)
def test_a_file_that_is_no_report_of_ours_is_left_out(
    folder: Path, what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    change, said = LEFT_OUT[what]
    put(folder, "good.json", render_json(report(1)), age_s=10)
    change(put(folder, "x.json", render_json(report(2, A, B, nodes=(NODE,)))))
    assert read(folder) == (report(1),)
    told = capsys.readouterr().err
    assert told.startswith(f"preflight: --history {folder}: 1 left out, the newest: {said}") if said else not told
    assert told.count("\n") == bool(said)
    read_history(str(folder), NODE, is_quiet=True)
    assert capsys.readouterr().err == ""


def test_no_more_is_opened_than_one_report_may_cost(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(2100):
        (folder / f"{number}.json").touch()
    put(folder, "old.json", render_json(report()), age_s=1000)
    assert read(folder) == ()
    assert "53 left out, the newest: " in capsys.readouterr().err, f"{REPORT.most_bytes >> 20} MiB, 16 KiB a file"


def nothing(path: Path) -> None:
    path.rmdir()


def file(path: Path) -> None:
    path.rmdir()
    path.touch()


def pipe(path: Path) -> None:
    path.rmdir()
    os.mkfifo(path)


REFUSED: dict[str, tuple[Callable[[Path], object], str]] = {
    "not there": (nothing, "no such file or directory"),
    "a file": (file, "it is no folder"),
    "a FIFO": (pipe, "it is no folder"),
    "another user's": (other_users, "it belongs to another user (uid 65534)"),
    "open to all": (lambda path: path.chmod(0o777), "other users may write it"),
    "as /tmp": (lambda path: path.chmod(0o1777), "other users may write it"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_folder_that_others_may_fill_is_refused_in_one_line(folder: Path, what: str) -> None:
    change, said = REFUSED[what]
    change(folder)
    with pytest.raises(UsageError) as refused:
        read(folder)
    advice = "give a folder of earlier reports that is yours or root's and that no one else may write"
    assert str(refused.value) == f"--history {folder}: {said}; {advice}"


def test_a_folder_of_root_s_is_good_for_all() -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    with TemporaryDirectory(dir="/dev/shm") as name:
        put(Path(name), "a.json", render_json(report()))
        os.chmod(name, 0o755)
        os.seteuid(NOBODY)
        try:
            assert len(read(Path(name))) == 1
        finally:
            os.seteuid(0)


@pytest.mark.parametrize("name", ["", "\0", "x" * 5000, "-"])
def test_any_name_is_a_folder_or_our_error(name: str) -> None:
    with pytest.raises(UsageError, match=r"^--history "):
        read_history(name, NODE, is_quiet=False)


GOOD = render_json(report(nodes=(NODE,)))


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(place=st.integers(0, len(GOOD)), length=st.integers(0, 400), inserted=st.binary(max_size=40))
def test_whatever_a_file_holds_it_is_read_or_left_out(folder: Path, place: int, length: int, inserted: bytes) -> None:
    data = GOOD.encode()
    (folder / "x.json").write_bytes(data[:place] + inserted + data[place + length :])
    assert len(read(folder)) <= 1
