"""Processes: real ones, in small trees that try to get away."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from preflight.system import processes
from tests.conftest import PROJECT

LIMIT_S = 10.0
SLEEP = "import time; time.sleep(60)"

# A process whose child starts a grandchild in a session of its own, whose parent is gone; and so on, three deep.
ESCAPES = """
import os, subprocess, sys, time
from preflight.system import processes
def escape(depth):
    if os.fork() == 0:
        os.setsid()
        if depth:
            escape(depth - 1)
        if os.fork():
            os._exit(0)
        time.sleep(60)
"""
LAUNCHER = (
    ESCAPES
    + """
processes.adopt_orphans()
other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
spared = frozenset({other.pid})
tree = os.fork()
if tree == 0:
    escape(3)
    os._exit(0) if sys.argv[1] == "dead" else time.sleep(60)
until = time.monotonic() + 10
while len(processes.descendants_of(os.getpid())) < (5 if sys.argv[1] == "dead" else 6) and time.monotonic() < until:
    time.sleep(0.01)
time.sleep(0.1)
found = processes.descendants_of(os.getpid()) - spared
survivors = processes.kill_descendants(spared, 5)
left = processes.descendants_of(os.getpid())
print(len(found), survivors, left == spared)
other.kill()
other.wait()
"""
)
DIES_WITH_PARENT = """
import os, subprocess, sys, time
from preflight.system import processes
child = os.fork()
if child == 0:
    processes.die_with_parent(int(sys.argv[1]) or os.getppid())
    print("ready", os.getpid(), flush=True)
    time.sleep(60)
print("exit", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
STOPS_WITH_PARENT = DIES_WITH_PARENT.replace("die_with_parent(", "stop_with_parent(").replace(
    "os.getppid())", "os.getppid(), sys.argv[2])"
)
STOPPABLE = """
import os, signal, sys, time
from preflight.errors import Interrupted
from preflight.system.signals import raise_on_signals
if sys.argv[1] == "nohup":
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
raise_on_signals()
try:
    print("ready", flush=True)
    time.sleep(60)
except Interrupted as error:
    os.kill(os.getpid(), signal.SIGINT)
    os.kill(os.getpid(), signal.SIGTERM)
    print(error, flush=True)
    sys.exit(error.exit_code)
"""


def python(code: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", code, *arguments], cwd=PROJECT, stdout=subprocess.PIPE, text=True)


def wait_until_gone(pid: int) -> None:
    until = time.monotonic() + LIMIT_S
    while processes.state(pid) not in processes.GONE:
        assert time.monotonic() < until, f"{pid} is still there"
        time.sleep(0.01)


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "60"]) as process:
        yield process
        process.kill()


def test_the_state_tells_the_running_the_stopped_the_dead_and_the_unknown(sleeper: subprocess.Popen[bytes]) -> None:
    assert processes.state(os.getpid()) == "R"
    assert processes.state(sleeper.pid) in ("S", "R", "D")
    os.kill(sleeper.pid, signal.SIGSTOP)
    os.waitpid(sleeper.pid, os.WUNTRACED)
    assert processes.state(sleeper.pid) == "T"
    sleeper.kill()
    os.waitid(os.P_PID, sleeper.pid, os.WEXITED | os.WNOWAIT)
    assert processes.state(sleeper.pid) == "Z"
    sleeper.wait()
    assert processes.state(sleeper.pid) == ""
    assert processes.state(2**22 + 1) == ""


def test_a_name_with_blanks_and_brackets_does_not_hide_the_state() -> None:
    name = "import ctypes; ctypes.CDLL(None).prctl(15, b') Z 1 (x'); print('ready', flush=True);"
    with python(name + SLEEP) as process:
        try:
            assert process.stdout
            assert process.stdout.readline() == "ready\n"
            assert processes.state(process.pid) in ("R", "S", "D")
            assert process.pid in processes.descendants_of(os.getpid())
        finally:
            process.kill()


def test_this_process_has_at_least_one_thread() -> None:
    assert processes.thread_count() == len(os.listdir("/proc/self/task"))


def test_descendants_are_all_that_live_below_and_not_the_process_itself(sleeper: subprocess.Popen[bytes]) -> None:
    assert sleeper.pid in processes.descendants_of(os.getpid())
    assert os.getpid() not in processes.descendants_of(os.getpid())
    assert processes.descendants_of(sleeper.pid) == frozenset()
    sleeper.kill()
    wait_until_gone(sleeper.pid)
    assert sleeper.pid not in processes.descendants_of(os.getpid())


@pytest.mark.parametrize("root", ["alive", "dead"])
def test_processes_that_left_their_parent_and_session_are_killed_too_and_others_spared(root: str) -> None:
    with python(LAUNCHER, root) as process:
        out, _ = process.communicate(timeout=LIMIT_S * 2)
    assert out.split() == ["5" if root == "alive" else "4", "()", "True"]


def test_a_process_dies_with_its_parent() -> None:
    with python(DIES_WITH_PARENT, "0") as parent:
        assert parent.stdout
        word, child = parent.stdout.readline().split()
        assert word == "ready"
        parent.kill()
        wait_until_gone(int(child))


def test_a_process_whose_parent_is_already_gone_ends_at_once() -> None:
    with python(DIES_WITH_PARENT, "1") as parent:  # pid 1 stands for the parent that it had
        assert parent.communicate(timeout=LIMIT_S)[0] == "exit 1\n"


@pytest.fixture
def lifeline(tmp_path: Path) -> Iterator[int]:
    os.mkfifo(tmp_path / "lifeline")
    fd = os.open(tmp_path / "lifeline", os.O_RDWR | os.O_NONBLOCK)
    yield fd
    with contextlib.suppress(OSError):
        os.close(fd)


def test_a_process_stops_with_its_parent_and_dies_with_the_lifeline(lifeline: int, tmp_path: Path) -> None:
    with python(STOPS_WITH_PARENT, "0", str(tmp_path / "lifeline")) as parent:
        assert parent.stdout
        child = int(parent.stdout.readline().split()[1])
        parent.kill()
        until = time.monotonic() + LIMIT_S
        while processes.state(child) != "T":
            assert time.monotonic() < until, f"{child} is {processes.state(child)!r}"
            time.sleep(0.01)
        os.close(lifeline)
        wait_until_gone(child)


def test_it_ends_at_once_where_nobody_holds_the_lifeline_and_dies_with_its_parent_where_there_is_none(
    lifeline: int, tmp_path: Path
) -> None:
    os.close(lifeline)
    with python(STOPS_WITH_PARENT, "0", str(tmp_path / "lifeline")) as parent:
        assert parent.communicate(timeout=LIMIT_S)[0] == "exit 1\n"
    with python(STOPS_WITH_PARENT, "0", str(tmp_path / "none")) as parent:
        assert parent.stdout
        child = int(parent.stdout.readline().split()[1])
        parent.kill()
        wait_until_gone(child)


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)], ids=lambda v: str(int(v))
)
def test_the_first_signal_ends_the_run_in_order_and_later_ones_change_nothing(number: int, code: int) -> None:
    with python(STOPPABLE, "") as process:
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
        process.send_signal(number)
        assert process.communicate(timeout=LIMIT_S)[0] == f"stopped by {signal.Signals(number).name}\n"
    assert process.returncode == code


def test_under_nohup_a_closed_terminal_changes_nothing() -> None:
    with python(STOPPABLE, "nohup") as process:
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGHUP)
        time.sleep(0.1)
        assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        assert process.communicate(timeout=LIMIT_S)[0] == "stopped by SIGTERM\n"


def test_a_signal_whose_exception_python_drops_is_raised_again() -> None:
    """In the callback of a weak reference; importing a module has one, so it happens."""
    dropped = STOPPABLE.replace(
        'print("ready", flush=True)',
        "import weakref; thing = {1}; weak = weakref.ref(thing, lambda _: os.kill(os.getpid(), signal.SIGINT)); "
        'del thing; print("goes on", flush=True)',
    )
    with python(dropped, "") as process:
        assert process.communicate(timeout=LIMIT_S)[0] == "goes on\nstopped by SIGINT\n"
    assert process.returncode == 130
