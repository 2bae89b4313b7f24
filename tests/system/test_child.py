"""Children end when they are told to, and one that has ended already, whoever reaped it, is no error."""

from __future__ import annotations

import os
import signal
import sys
import time

import pytest

from preflight.system.child import ChildProcess, Parent, fork_child, start_program
from preflight.system.waiting import wait_for

LIMIT_S = 20.0


def sleep_forever(_: Parent) -> None:
    while True:
        time.sleep(60)


def messages_of(child: ChildProcess) -> list[object]:
    """Return everything that the child writes until it has no more to say."""
    found: list[object] = []
    while child.fd >= 0:
        assert wait_for([child.fd], (), LIMIT_S)
        found += child.receive()
    return found


def ended(child: ChildProcess) -> bool:
    """End a child, and tell whether it has gone."""
    child.close()
    child.kill_group()
    return child.reap(time.monotonic() + LIMIT_S)


def test_a_child_answers_what_it_is_asked_and_ends_with_its_questions() -> None:
    def double(parent: Parent) -> None:
        for question in parent.questions():
            parent.send(2 * question)

    child = fork_child(double, is_asked=True)
    child.send("x" * (1 << 20))
    child.send(21)
    got: list[object] = []
    while len(got) < 2:
        assert wait_for([child.fd], (), LIMIT_S)
        got += child.receive()
    assert got == ["x" * (2 << 20), 42]
    os.close(child.questions_fd)
    child.questions_fd = -1
    assert messages_of(child) == []
    assert child.reap(time.monotonic() + LIMIT_S)
    assert child.exitcode == 0


def test_half_a_line_of_a_child_that_died_is_no_message() -> None:
    def die(parent: Parent) -> None:
        parent.send(1)
        os.write(parent.fd, b'{"half": ')
        os.kill(os.getpid(), signal.SIGKILL)

    child = fork_child(die)
    assert messages_of(child) == [1]
    assert child.reap(time.monotonic() + LIMIT_S)
    assert child.exitcode == -signal.SIGKILL


def test_a_child_that_never_ends_is_killed_and_reaped() -> None:
    child = fork_child(sleep_forever)
    assert ended(child)
    assert child.exitcode == -signal.SIGKILL
    assert (child.fd, child.questions_fd) == (-1, -1)


def test_ctrl_c_ends_no_child() -> None:
    def outlive(parent: Parent) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        parent.send("alive")

    child = fork_child(outlive)
    assert messages_of(child) == ["alive"]
    ended(child)


def test_a_child_that_somebody_else_reaped_is_no_error() -> None:
    child = fork_child(lambda _: None)
    os.waitpid(child.pid, 0)
    assert ended(child)
    assert child.exitcode is None
    child.kill_group()


def test_a_number_that_was_given_to_another_process_is_never_signalled(monkeypatch: pytest.MonkeyPatch) -> None:
    signalled: list[int] = []
    child = fork_child(lambda _: None)
    os.waitpid(child.pid, 0)
    monkeypatch.setattr(os, "kill", lambda pid, _: signalled.append(pid))
    monkeypatch.setattr(os, "killpg", lambda pid, _: signalled.append(pid))
    child.signal(signal.SIGTERM)
    child.kill_group()
    ended(child)
    assert signalled == []


def test_killing_twice_is_no_error() -> None:
    child = fork_child(sleep_forever)
    assert ended(child)
    assert ended(child)


def test_a_child_that_raises_ends_with_1_and_runs_nothing_of_its_parent() -> None:
    def fail(_: Parent) -> None:
        raise ValueError

    child = fork_child(fail)
    assert messages_of(child) == []
    assert child.reap(time.monotonic() + LIMIT_S)
    assert child.exitcode == 1


def test_a_program_is_asked_and_answers_in_lines() -> None:
    echo = "import sys\nfor line in sys.stdin: print(line, end='', flush=True)"
    child = start_program([sys.executable, "-c", echo], os.environ)
    child.send({"n": [1, None]})
    assert wait_for([child.fd], (), LIMIT_S)
    assert child.receive() == [{"n": [1, None]}]
    ended(child)


def test_a_program_that_is_not_there_leaves_no_descriptor() -> None:
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(OSError, match="No such file"):
        start_program(["/nonexistent/program"], {})
    assert len(os.listdir("/proc/self/fd")) == before


def test_children_leave_no_descriptor() -> None:
    before = len(os.listdir("/proc/self/fd"))
    ended(fork_child(sleep_forever, is_asked=True))
    assert len(os.listdir("/proc/self/fd")) == before
