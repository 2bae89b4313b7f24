"""Whatever a child of a crew does, it is named with the right word and nothing of it is left."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from preflight.system import processes
from preflight.system.child import Parent
from preflight.system.crew import Crew, Lost
from preflight.system.waiting import wait_for

LIMIT_S = 20.0  # for what is to come at once, on a busy machine
SHORT_S = 0.3
DEAF = "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"  # a program that ignores SIGTERM


def sleep_forever(_: Parent) -> None:
    while True:
        time.sleep(60)


def die(_: Parent) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def write_half_a_line(parent: Parent) -> None:
    os.write(parent.fd, b'{"half": ')


def write_half_a_line_and_stay(parent: Parent) -> None:
    os.write(parent.fd, b'{"half": ')
    sleep_forever(parent)


def write_no_json(parent: Parent) -> None:
    os.write(parent.fd, b"{]\n")
    sleep_forever(parent)


def flood_with_one_line(parent: Parent) -> None:
    while True:
        os.write(parent.fd, b"x" * (1 << 16))


def flood_with_lines(parent: Parent) -> None:
    while True:
        parent.send("x" * 100)


def stop(_: Parent) -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def ignore_sigterm(parent: Parent) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sleep_forever(parent)


def fork_and_sleep(parent: Parent) -> None:
    if os.fork() == 0:
        sleep_forever(parent)
    sleep_forever(parent)


def fork_and_die(parent: Parent) -> None:
    if os.fork() == 0:
        sleep_forever(parent)  # it has the pipe of its parent open
    die(parent)


MISDEEDS: dict[Callable[[Parent], None], tuple[float, Lost]] = {
    sleep_forever: (SHORT_S, Lost.LATE),
    die: (LIMIT_S, Lost.DIED),
    write_half_a_line: (LIMIT_S, Lost.DIED),
    write_half_a_line_and_stay: (SHORT_S, Lost.LATE),
    write_no_json: (LIMIT_S, Lost.GARBLED),
    flood_with_one_line: (LIMIT_S, Lost.GARBLED),
    flood_with_lines: (SHORT_S, Lost.LATE),
    stop: (SHORT_S, Lost.LATE),
    ignore_sigterm: (SHORT_S, Lost.LATE),
    fork_and_sleep: (SHORT_S, Lost.LATE),
    fork_and_die: (LIMIT_S, Lost.DIED),
}


def heard_to_the_end(crew: Crew[str]) -> list[tuple[str, Any, Lost | None]]:
    heard: list[tuple[str, Any, Lost | None]] = []
    while crew.children:
        heard += crew.listen()
    return heard


def own_children() -> str:
    with open(f"/proc/self/task/{os.getpid()}/children", encoding="ascii") as file:
        return file.read()


def assert_gone(leader: int) -> None:
    """Fail where a process of the group lives, and end it; whom init has to reap is dead all the same."""
    until = time.monotonic() + LIMIT_S
    while (left := members(leader)) and time.monotonic() < until:
        time.sleep(0.01)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert not left


def members(leader: int) -> list[int]:
    """Return the living processes of a process group."""
    found = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{entry}/stat", encoding="utf-8", errors="replace") as file:
                state, _, its_group = file.read().rpartition(")")[2].split()[:3]
        except OSError:
            continue
        if int(its_group) == leader and state not in processes.GONE:
            found.append(int(entry))
    return found


@pytest.fixture
def nothing_left() -> Iterator[None]:
    """Fail where a process that was forked in the test lives on, wherever it hides: it has a pipe open.

    Orphans are init's, as beside a user's program; a test before may have made this process adopt them.
    """
    ctypes.CDLL(None).prctl(processes.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
    before, descriptors = own_children(), len(os.listdir("/proc/self/fd"))
    reader, writer = os.pipe()
    yield
    os.close(writer)
    assert wait_for([reader], (), LIMIT_S), "a process lives"
    os.close(reader)
    assert own_children() == before, "none is left to be reaped"
    assert len(os.listdir("/proc/self/fd")) == descriptors


@pytest.mark.usefixtures("nothing_left")
@pytest.mark.parametrize("misdeed", MISDEEDS, ids=lambda each: each.__name__)
def test_whatever_a_child_does_it_is_named_once_and_nothing_is_left(misdeed: Callable[[Parent], None]) -> None:
    limit_s, word = MISDEEDS[misdeed]
    with Crew[str]() as crew:
        crew.fork("bad", misdeed, limit_s)
        crew.fork("good", sleep_forever)
        leader = crew.children["bad"].pid
        heard = crew.listen(LIMIT_S)
        while heard[-1][2] is None:
            heard = crew.listen(LIMIT_S)
        assert heard[-1] == ("bad", None, word)
        assert list(crew.children) == ["good"]
        assert_gone(leader)
        assert crew.listen(0.0) == []


@pytest.mark.usefixtures("nothing_left")
@pytest.mark.parametrize("misdeed", MISDEEDS, ids=lambda each: each.__name__)
def test_leaving_the_block_leaves_nothing(misdeed: Callable[[Parent], None]) -> None:
    crew = Crew[str]()
    with pytest.raises(ZeroDivisionError), crew:
        crew.fork("bad", misdeed)
        time.sleep(0.1)
        raise ZeroDivisionError
    assert not crew.children


def test_questions_are_answered_and_a_child_that_is_asked_no_more_goes_by_itself() -> None:
    reader, writer = os.pipe()

    def double(parent: Parent) -> None:
        for question in parent.questions():
            parent.send(2 * question)
        time.sleep(0.3)
        os.write(writer, b"left")

    with Crew[int](leave_s=5.0) as crew:
        for key in (1, 2):
            crew.fork(key, double, is_asked=True)
        crew.ask(1, 21, LIMIT_S)
        crew.ask(2, "x" * (1 << 20), LIMIT_S)
        heard = crew.listen()
        while len(heard) < 2:
            heard += crew.listen()
        assert sorted(heard) == [(1, 42, None), (2, "x" * (2 << 20), None)]
        crew.end(1)
        assert wait_for([reader], (), 0.0), "the other has the end of its questions open"
        assert os.read(reader, 100) == b"left"
        assert list(crew.children) == [2]
    assert wait_for([reader], (), 0.0)
    assert os.read(reader, 100) == b"left"
    os.close(reader)
    os.close(writer)


def test_an_answer_that_waited_for_us_beyond_its_limit_is_taken() -> None:
    def answer_and_stay(parent: Parent) -> None:
        parent.send("here")
        sleep_forever(parent)

    with Crew[str]() as crew:
        crew.fork("quick", answer_and_stay, SHORT_S)
        time.sleep(2 * SHORT_S)
        assert crew.listen() == [("quick", "here", None)]
        assert crew.listen() == [("quick", None, Lost.LATE)]


def test_a_child_that_always_has_something_to_say_is_late_all_the_same() -> None:
    def chatter(parent: Parent) -> None:
        while True:
            parent.send("still here")
            time.sleep(0.01)

    with Crew[str]() as crew:
        crew.fork("chatters", chatter, 0.0)
        heard: list[tuple[str, Any, Lost | None]] = []
        while crew.children and len(heard) < 1000:
            time.sleep(0.1)  # so that whenever it is listened to, it has said something
            heard += crew.listen()
        assert heard[-1] == ("chatters", None, Lost.LATE)


def test_a_question_that_a_child_does_not_read_makes_nobody_wait() -> None:
    with Crew[str]() as crew:
        crew.fork("deaf", stop, is_asked=True)
        crew.ask("deaf", "x" * (1 << 20), SHORT_S)
        assert crew.listen() == [("deaf", None, Lost.LATE)]


def test_another_limit_forgives_and_what_a_child_says_changes_none() -> None:
    def count(parent: Parent) -> None:
        for number in range(1000):
            parent.send(number)
            time.sleep(0.02)

    with Crew[str]() as crew:
        crew.fork("counts", count, SHORT_S)
        crew.expect("counts", LIMIT_S)
        time.sleep(SHORT_S)
        assert {lost for _, _, lost in crew.listen()} == {None}
        crew.expect("counts", SHORT_S)
        assert heard_to_the_end(crew)[-1] == ("counts", None, Lost.LATE)


def test_a_crew_without_children_is_not_waited_for() -> None:
    assert Crew[str]().listen() == []


def test_a_child_that_has_died_can_be_asked_no_more_and_is_named_when_it_is_listened_to() -> None:
    with Crew[str]() as crew:
        crew.fork("dead", die, is_asked=True)
        while not crew.children["dead"].has_ended():
            time.sleep(0.01)
        with pytest.raises(BrokenPipeError):
            crew.ask("dead", "anybody?")
        assert crew.listen() == [("dead", None, Lost.DIED)]


def test_a_program_is_asked_answers_and_gets_the_signals_that_were_held_back_when_it_was_started() -> None:
    echo = "import os, signal, sys\nfor line in sys.stdin: print(line, end='', flush=True)\n"
    blocked = "print(len(signal.pthread_sigmask(signal.SIG_BLOCK, [])), flush=True)\n"
    with Crew[str]() as crew:
        crew.start("echo", [sys.executable, "-c", echo], os.environ)
        crew.ask("echo", {"n": [1, None]}, LIMIT_S)
        assert crew.listen() == [("echo", {"n": [1, None]}, None)]
        crew.start("blocked", [sys.executable, "-c", "import signal\n" + blocked], os.environ, LIMIT_S)
        assert crew.listen()[0] == ("blocked", 0, None)


@pytest.mark.parametrize("code", [DEAF + "time.sleep(600)", DEAF + "import os\nos.fork()\ntime.sleep(600)"])
def test_a_program_that_is_late_goes_with_all_that_it_started(code: str) -> None:
    with Crew[str]() as crew:
        crew.start("deaf", [sys.executable, "-c", code], os.environ, 1.0)
        leader = crew.children["deaf"].pid
        assert crew.listen() == [("deaf", None, Lost.LATE)]
        assert_gone(leader)


def test_a_program_that_is_not_there_leaves_no_child() -> None:
    with Crew[str]() as crew:
        with pytest.raises(OSError, match="No such file"):
            crew.start("none", ["/nonexistent/program"], {})
        assert not crew.children


CREW_OF_THREE = """
import sys, time
from preflight.system.crew import Crew

def slow(parent):
    for _ in range(int({needs_s} / 0.05)):  # of time in which it runs
        time.sleep(0.05)
    parent.send("answer")

def hold(parent):  # a program of its own, as py-spy is
    with Crew[str]() as inner:
        inner.start("inner", [sys.executable, "-c", "import time; time.sleep(600)"], {{}})
        parent.send(inner.children["inner"].pid)
        inner.listen()

with Crew[str]() as crew:
    crew.fork("slow", slow, {limit_s})
    crew.fork("holds", hold)
    crew.start("program", [sys.executable, "-c", "import time; time.sleep(600)"], {{}})
    print(*(child.pid for child in crew.children.values()), flush=True)
    while True:
        for key, message, lost in crew.listen():
            print(key, lost.value if lost else message, flush=True)
"""


@contextlib.contextmanager
def crew_of_three(needs_s: float, limit_s: float) -> Iterator[tuple[subprocess.Popen[str], list[int]]]:
    """Start a process with a crew; give it and the leaders of the process groups below it. None of them may be left."""
    code = CREW_OF_THREE.format(needs_s=needs_s, limit_s=limit_s)
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        leaders = [int(pid) for pid in process.stdout.readline().split()]
        assert len(leaders) == 3
        name, inner = process.stdout.readline().split()
        assert name == "holds"
        leaders.append(int(inner))
        try:
            yield process, leaders
        finally:
            process.kill()
    for leader in leaders:
        assert_gone(leader)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_parent_that_is_killed_takes_its_crew_along_and_the_programs_of_a_crew_within(number: signal.Signals) -> None:
    with crew_of_three(needs_s=600, limit_s=600) as (process, leaders):
        assert all(map(members, leaders))
        process.send_signal(number)
        assert process.wait(LIMIT_S) == -number


@pytest.mark.integration
@pytest.mark.parametrize(("all_stop", "needs_s"), [(False, 11.5), (True, 1.5)])
def test_a_parent_that_stood_still_for_ten_seconds_calls_no_child_late(all_stop: bool, needs_s: float) -> None:
    with crew_of_three(needs_s, limit_s=4.0) as (process, leaders):
        stopped = [process.pid, *leaders] if all_stop else [process.pid]
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        time.sleep(10)
        for pid in reversed(stopped):
            os.kill(pid, signal.SIGCONT)
        assert process.stdout is not None
        assert process.stdout.readline() == "slow answer\n"
