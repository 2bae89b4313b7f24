"""What listens during a run is what docs/trust.md says, and strangers who connect to it change no result."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest

from tests.command import Command, Ran, default_trial
from tests.netns import can_make_netns, make_netns

pytestmark = pytest.mark.timing

HOST = "odd-name"
ADDRESS = "10.77.0.1"
STRANGERS = {"nothing": b"", "three_bytes": b"\x01\x02\x03", "garbage": os.urandom(4096)}


@dataclass
class Watch:
    """What was seen listening: (address, port, command line) of processes that carry the command's mark."""

    prefix: tuple[str, ...]
    seen: set[tuple[str, int, str]] = field(default_factory=set)


@contextmanager
def watching(
    command: Command, prefix: tuple[str, ...], on_port: Callable[[str, int], None] | None = None
) -> Iterator[Watch]:
    """Read `ss -ltnp` again and again; `on_port` is told every new address and port."""
    watch, stop = Watch(prefix), threading.Event()

    def look() -> None:
        while not stop.is_set():
            for address, port, line in listening(command, prefix) - watch.seen:
                watch.seen.add((address, port, line))
                if on_port:
                    on_port(address, port)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield watch
    finally:
        stop.set()
        thread.join()


def listening(command: Command, prefix: tuple[str, ...]) -> set[tuple[str, int, str]]:
    told = subprocess.run([*prefix, "ss", "-H", "-ltnp"], capture_output=True, text=True, check=True).stdout
    ours = command.processes()
    found = set()
    for line in told.splitlines():
        address, _, port = line.split()[3].rpartition(":")
        found |= {(address, int(port), ours[pid]) for pid in map(int, re.findall(r"pid=(\d+)", line)) if pid in ours}
    return found


@pytest.fixture
def need_ss(need: Callable[[str, bool, str], None]) -> None:
    need("ss", shutil.which("ss") is not None, "`ss` of iproute2 is not installed")


@pytest.mark.integration
def test_only_the_trials_own_gloo_sockets_listen_and_only_on_the_interface_in_use(
    command: Command, need: Callable[[str, bool, str], None], need_ss: None
) -> None:
    need("netns", can_make_netns(), "network namespaces need root and iproute2")
    with make_netns(hosts=f"127.0.0.1 localhost\n{ADDRESS} {HOST}\n") as namespace:
        namespace.add_interface("eth0", f"{ADDRESS}/24")
        with watching(command, namespace.prefix) as watch:
            ran = command.run("check", "--nproc", "2", prefix=namespace.named(HOST))
    assert ran.code == 0, ran.stdout + ran.stderr
    assert {address for address, _, _ in watch.seen} == {ADDRESS}
    assert len(watch.seen) == 2, "one socket a rank, made by gloo for the trial's group"
    assert all(line.startswith("preflight-r") for _, _, line in watch.seen)


@pytest.mark.parametrize("words", STRANGERS.values(), ids=STRANGERS.keys())
@pytest.mark.integration
def test_strangers_who_connect_change_no_result(command: Command, need_ss: None, words: bytes) -> None:
    held: list[socket.socket] = []

    def bother(address: str, port: int) -> None:
        for _ in range(3):
            stranger = socket.create_connection((address, port), 1)
            held.append(stranger)
            stranger.sendall(words)

    try:
        with watching(command, (), bother):
            # Rank 1 joins a second late, so that the strangers find rank 0 listening and not yet connected.
            ran = late_joiner(command)
    finally:
        for stranger in held:
            stranger.close()
    assert len(held) >= 6, "both ranks' ports were found"
    assert ran.code == 0, ran.stdout + ran.stderr
    trial = default_trial(ran.report)
    assert trial["outcome"] == "ok", trial["problem"]
    assert trial["duration_s"] < 6
    assert trial["results"]
    assert all(result["verified"] for result in trial["results"])


LATE_JOINER = """
import time
import torch.distributed as dist
from torch._C._distributed_c10d import ProcessGroupGloo

def _create(store, rank, size, timeout):
    time.sleep(rank)
    return ProcessGroupGloo(store, rank, size, timeout)

dist.Backend.register_backend("late", _create, devices=["cpu"])
"""


def late_joiner(command: Command) -> Ran:
    modules = command.tmp_path / "modules"
    modules.mkdir()
    (modules / "late.py").write_text(LATE_JOINER)
    return command.run("check", "--backend", "late@late", "--nproc", "2", env={"PYTHONPATH": str(modules)})
