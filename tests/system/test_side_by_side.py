"""Programs side by side: how each ended, and none that outlives whoever asked for it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from preflight.system import processes
from preflight.system.side_by_side import CANNOT_START, Ended, run_side_by_side

LIMIT_S = 20.0

ASK = """
import sys
from preflight.system.isolate import run_isolated
from preflight.system.side_by_side import run_side_by_side

def ask():  # as `preflight stuck` asks py-spy: in a child that may be killed
    command = ["/bin/sh", "-c", f"echo $$ > {sys.argv[1]}; exec sleep 600"]
    run_side_by_side({0: command}, {"PATH": "/usr/bin:/bin"}, 600.0, 600.0, 1)

run_isolated({"stacks": ask}, {"stacks": float(sys.argv[2])})
"""


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def test_each_program_ends_in_its_own_way_and_too_many_bytes_end_one() -> None:
    commands = {
        "says": python("import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)"),
        "none": ["/nonexistent/program"],
        "killed": python("import os; os.kill(os.getpid(), 9)"),
        "late": python("import time; time.sleep(600)"),
        "floods": python("while True: print('x' * 100000)"),
    }
    ended = run_side_by_side(commands, os.environ, 3.0, LIMIT_S, 2)
    assert ended["says"] == Ended(3, "out\n", "err\n")
    assert (ended["none"].code, ended["none"].stderr[:10]) == (CANNOT_START, "[Errno 2] ")
    assert ended["killed"] == Ended(-signal.SIGKILL, "", "")
    assert ended["late"] == Ended(None, "", "")
    assert ended["floods"].code not in (0, None)
    assert len(ended["floods"].stdout) <= 8 << 20


def test_a_program_whose_turn_never_came_is_not_in_the_answer() -> None:
    commands = {number: python("import time; time.sleep(600)") for number in range(3)}
    assert run_side_by_side(commands, os.environ, LIMIT_S, 0.5, 1) == {0: Ended(None, "", "")}


def outlived(pid: int) -> bool:
    """Tell whether a process lives; it is given the time that the kernel takes to end it."""
    until = time.monotonic() + LIMIT_S
    while os.path.exists(f"/proc/{pid}") and (state := processes.state(pid)) not in processes.GONE:
        if time.monotonic() > until:
            os.kill(pid, signal.SIGKILL)
            return bool(state)
        time.sleep(0.01)
    return False


def pid_in(path: Path) -> int:
    until = time.monotonic() + LIMIT_S
    while not (path.exists() and (text := path.read_text(encoding="ascii"))):
        assert time.monotonic() < until
        time.sleep(0.01)
    return int(text)


def test_a_program_of_an_isolated_child_ends_when_that_child_is_late(tmp_path: Path) -> None:
    subprocess.run([*python(ASK), str(tmp_path / "pid"), "1.5"], check=True, timeout=60)
    assert not outlived(pid_in(tmp_path / "pid"))


def test_a_program_of_an_isolated_child_ends_when_preflight_is_killed(tmp_path: Path) -> None:
    with subprocess.Popen([*python(ASK), str(tmp_path / "pid"), "600"]) as process:
        pid = pid_in(tmp_path / "pid")
        process.kill()
    assert not outlived(pid)
