"""Processes: dying with the parent, killing without leaving anything, and what /proc says of a pid."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36

_libc = ctypes.CDLL(None, use_errno=True)


def die_with_parent(parent_pid: int) -> None:
    """Have the kernel kill this process when its parent dies, and exit at once where it already has."""
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent_pid:
        os._exit(1)


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent dies, so that all can be reaped."""
    _libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def state(pid: int) -> str:
    """Return the one-letter state of /proc/PID/stat (R S D T Z ...), or "" where there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return ""


def thread_count() -> int:
    """Return how many threads this process has."""
    return len(os.listdir("/proc/self/task"))


def children_of(pid: int) -> tuple[int, ...]:
    """Return the direct children of a process, across its threads."""
    found: list[int] = []
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/children", encoding="ascii") as file:
                found.extend(int(word) for word in file.read().split())
    except OSError:
        pass
    return tuple(found)


def kill_tree(pid: int, wait_s: float) -> tuple[int, ...]:
    """SIGKILL a process and everything below it, and reap what becomes ours; return the pids that would not die.

    Descendants are stopped being found only when none is left, since one may fork while another is killed.
    """
    until = time.monotonic() + wait_s
    alive = _descendants(pid)
    while alive:
        for each in alive:
            _kill(each)
        reap()
        alive = tuple(each for each in set(alive) | set(_descendants(pid)) if state(each) not in ("", "Z"))
        if alive and time.monotonic() > until:
            break
        if alive:
            time.sleep(0.005)
    reap()
    return alive


def reap() -> None:
    """Reap every child that has ended."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def _descendants(pid: int) -> tuple[int, ...]:
    found = [pid] if state(pid) not in ("", "Z") else []
    for child in children_of(pid):
        found.extend(_descendants(child))
    return tuple(found)


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
