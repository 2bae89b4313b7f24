"""Stop a run in an orderly way after Ctrl-C, SIGTERM or SIGHUP.

The first signal raises Interrupted, and later signals are ignored.
"""
# A deadline can stop a run in the same way.

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import sys
import time
from collections.abc import Iterator
from types import FrameType

from preflight.errors import DeadlinePassed, Interrupted, Stopped
from preflight.system.waiting import wait_for

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
AGAIN_S = 0.01

_ignored: set[signal.Signals] = set()
_dropped: list[Stopped] = []  # what Python forgot, until it is raised again


def ignored_at_start() -> frozenset[signal.Signals]:
    """Return the stop signals that were ignored when preflight started, for example under nohup."""
    return frozenset(_ignored)


def raise_on_signals() -> None:
    """Have the main thread raise Interrupted at Ctrl-C, SIGTERM or SIGHUP.

    SIGHUP stays ignored under nohup.
    """
    sys.unraisablehook = _raise_again
    for number in STOPPING:
        if signal.getsignal(number) is signal.SIG_IGN:
            _ignored.add(number)
        if signal.getsignal(number) is not signal.SIG_IGN or number is not signal.SIGHUP:
            signal.signal(number, _raise)


def end_with_stdin() -> None:
    """Have the kernel send SIGTERM to this process when its stdin ends or has input.

    A stdin from /dev/null or a file never triggers the signal.
    """
    # The end of stdin means that the program that started this process no longer needs this process.
    fcntl.fcntl(0, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(0, fcntl.F_SETSIG, signal.SIGTERM)
    fcntl.fcntl(0, fcntl.F_SETFL, fcntl.fcntl(0, fcntl.F_GETFL) | os.O_ASYNC)
    if wait_for([0], (), 0.0):  # it ended before
        os.kill(os.getpid(), signal.SIGTERM)


def ignore_signals() -> None:
    """Ignore Ctrl-C, SIGTERM, SIGHUP and the deadline from now on."""
    for number in (*STOPPING, signal.SIGALRM):
        signal.signal(number, signal.SIG_IGN)


@contextlib.contextmanager
def held_back() -> Iterator[None]:
    """Delay Ctrl-C, SIGTERM and SIGHUP until the end of the block."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def raise_at(ends_at: float, problem: str) -> None:
    """Have the main thread raise DeadlinePassed with the text `problem` at `ends_at` (monotonic seconds).

    The exception also interrupts a read that would never return.
    """

    def end(_number: int, _frame: FrameType | None) -> None:
        raise DeadlinePassed(problem)

    signal.signal(signal.SIGALRM, end)
    # A zero would disarm it; children that are forked inherit no timer.
    signal.setitimer(signal.ITIMER_REAL, max(1e-3, ends_at - time.monotonic()))


def raise_dropped() -> None:
    """Raise the exception that Python dropped because a signal came during a finalizer.

    If no exception was dropped, do nothing. Call this function before a result is treated as complete.
    """
    if _dropped:
        raise _dropped.pop()


def _raise(number: int, _frame: FrameType | None) -> None:
    ignore_signals()
    raise Interrupted(number, signal.Signals(number).name)


def _raise_again(lost: sys.UnraisableHookArgs) -> None:
    """Raise the exception of a signal handler again if Python printed and dropped the exception.

    Python drops an exception in a finalizer, such as the callback of a weak reference.
    """
    error = lost.exc_value
    if not isinstance(error, Stopped):
        sys.__unraisablehook__(lost)
        return

    def again(_number: int, _frame: FrameType | None) -> None:
        raise_dropped()

    _dropped[:] = [error]
    signal.signal(signal.SIGALRM, again)
    signal.setitimer(signal.ITIMER_REAL, AGAIN_S)
