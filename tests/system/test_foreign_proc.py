"""In a PID namespace that shows another one's /proc, nobody is killed who is not ours."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from preflight.system import processes
from preflight.system.wakeups import GAP_S, OwnTime
from tests.conftest import PROJECT

# PID 1 of a new namespace: a child that ignores everything, a grandchild in a session of its own, and a process of the
# outer namespace whose number nobody here has.
INSIDE = """
import os, subprocess, sys, time
from preflight.system import processes
processes.adopt_orphans()
child = subprocess.Popen([sys.executable, "-c",
    "import os, time\\nif os.fork() == 0: os.setsid()\\ntime.sleep(60)"])
until = time.monotonic() + 20
while len(processes.descendants_of(os.getpid())) < 2 and time.monotonic() < until:
    time.sleep(0.01)
found = processes.descendants_of(os.getpid())
print(os.getpid(), child.pid in found, len(found), processes.state(child.pid) in "RSD", max(found) < 100)
print(processes.kill_descendants(frozenset(), 10), len(processes.descendants_of(os.getpid())))
"""


@pytest.mark.integration
def test_the_numbers_of_another_proc_are_translated_and_only_ours_are_killed() -> None:
    command = ["unshare", "--pid", "--fork", sys.executable, "-c", INSIDE]
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as bystander:
        ran = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=100,
            env=os.environ | {"PYTHONPATH": str(PROJECT)},
        )  # fmt: skip
        if "unshare" in ran.stderr:
            pytest.skip(f"no PID namespace can be made here: {ran.stderr.strip()}")
        assert bystander.poll() is None
        bystander.kill()
    assert ran.stdout.splitlines() == ["1 True 2 True True", "() 0"], ran.stderr


def test_a_number_that_is_another_process_s_by_now_is_not_signalled() -> None:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as process:
        seen = processes._descendants(os.getpid())[process.pid]
        earlier = seen._replace(start_time=seen.start_time - 1)
        processes._kill(process.pid, earlier)
        time.sleep(0.05)
        assert process.poll() is None
        processes._kill(process.pid, seen)
        assert process.wait(timeout=30) == -9


def test_where_no_descriptor_is_left_ours_is_killed_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_descriptor(_pid: int) -> int:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(os, "pidfd_open", no_descriptor)
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as process:
        processes._kill(process.pid, processes._descendants(os.getpid())[process.pid])
        assert process.wait(timeout=30) == -9


def test_a_pause_is_what_a_loop_did_not_mean_to_wait() -> None:
    now = [100.0]
    own_time = OwnTime(lambda: now[0])
    now[0] += 0.05
    assert own_time.look(0.02) == 0.0  # late, as on a busy machine
    now[0] += 32.02
    assert own_time.look(0.02) == pytest.approx(32.0)
    now[0] += GAP_S - 0.01
    assert own_time.look() == 0.0
    assert own_time.lost_s == pytest.approx(32.0)
