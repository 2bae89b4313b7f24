"""What the second read of a process's stacks tells, and what it does not tell if it fails."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

from preflight.model.gap import Gap
from preflight.model.stuck_evidence import Frame, Stack, ThreadState
from preflight.stuck.collect.stacks import READ_ONCE, Stacks, has_frames, is_whole, read_stacks, reread_stacks

BUSY = "while True:\n    sum(range(1000))\n"


def running(pid: int, cpu_s: float) -> tuple[ThreadState, ...]:
    return (ThreadState(pid, "python", "R", "0", cpu_s, 5, Gap("it runs")),)


def test_a_process_that_ended_during_the_watch_has_stacks_of_its_end_only() -> None:
    job = subprocess.Popen([sys.executable, "-c", BUSY])
    try:
        first: dict[int, Stacks] = {}
        end_at = time.monotonic() + 20
        while isinstance(first.get(job.pid, READ_ONCE), Gap) and time.monotonic() < end_at:
            first = read_stacks([job.pid], False, 5.0, os.getuid())
        assert not isinstance(first[job.pid], Gap), first
        again, last = reread_stacks(first, {job.pid: running(job.pid, 1.5)}, False, os.getuid())
        assert not isinstance(again[job.pid], Gap) and again == first and last[job.pid]
    finally:
        job.send_signal(signal.SIGKILL)
        job.wait()
    again, last = reread_stacks(first, {job.pid: running(job.pid, 1.5)}, False, os.getuid())
    assert again == {job.pid: READ_ONCE} and last == first


def test_a_main_stack_that_changed_while_it_was_read_was_not_read() -> None:
    other = Stack(8, "Thread-1", False, (Frame("wait", "a.py", 3),))
    assert has_frames((other,)) and has_frames((Stack(7, "MainThread", False, other.frames), other))
    assert not has_frames((Stack(7, "MainThread", False, ()), other))


def test_a_stack_is_read_again_if_py_spy_failed_or_its_frames_do_not_begin_with_the_program() -> None:
    spins, program = Frame("check", "ring.py", 727), Frame("<module>", "serve.py", 1)
    assert is_whole((Stack(7, "MainThread", False, (spins, program)),)) and is_whole(Gap("the process had ended"))
    assert not is_whole((Stack(7, "MainThread", False, (spins,)),))
    assert not is_whole(Gap("py-spy failed: Error: Failed to get stack traces")) and not is_whole(None)


def test_who_slept_through_the_watch_is_not_read_again_and_keeps_its_stack() -> None:
    asleep = (ThreadState(7, "python", "S", "futex_do_wait", 0.0, 0, 60.0),)
    first: dict[int, Stacks] = {7: (Stack(7, "MainThread", False, (Frame("wait", "a.py", 3),)),)}
    assert reread_stacks(first, {7: asleep}, False, os.getuid()) == (first, first)
