"""Processes: dying with the parent, killing without leaving anything, and what /proc says of a pid."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time

PR_SET_PDEATHSIG = 1
PR_SET_NAME = 15
PR_SET_CHILD_SUBREAPER = 36
QUIET_LOOKS = 4  # at /proc in a row that find nothing, where spared children keep the kernel from telling
GONE = ("", "Z", "X")  # states of a process that needs no killing

_libc = ctypes.CDLL(None, use_errno=True)


def die_with_parent(parent_pid: int) -> None:
    """Have the kernel kill this process when its parent dies, and exit at once where it already has."""
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent_pid:
        os._exit(1)


def name_process(name: str) -> None:
    """Set what `ps -o comm` and `top` call this process: at most 15 bytes."""
    _libc.prctl(PR_SET_NAME, name.encode(), 0, 0, 0)


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent dies, so that all can be reaped."""
    _libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def state(pid: int) -> str:
    """Return the one-letter state of /proc/PID/stat (R S D T Z ...), or "" where there is no such process."""
    return _stat(pid)[0]


def _stat(pid: int) -> tuple[str, int]:
    """Return state and parent of a process, "" and 0 where there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            one_letter, parent = file.read().rpartition(")")[2].split()[:2]
    except (OSError, ValueError):
        return "", 0
    return one_letter, int(parent)


def thread_count() -> int:
    """Return how many threads this process has."""
    return len(os.listdir("/proc/self/task"))


def descendants_of(pid: int) -> frozenset[int]:
    """Return every living process below `pid`, without itself: one pass over /proc, by the parents that it names."""
    children: dict[int, set[int]] = {}
    for entry in filter(str.isdigit, os.listdir("/proc")):
        children.setdefault(_stat(int(entry))[1], set()).add(int(entry))
    found: set[int] = set()
    below = children.get(pid, set())
    while below:
        found |= below
        below = set().union(*(children.get(each, ()) for each in below)) - found
    return frozenset(each for each in found if state(each) not in GONE)


def kill_descendants(spared: frozenset[int], wait_s: float) -> tuple[int, ...]:
    """SIGKILL and reap every process below this one but the spared; return the pids that would not die.

    With adopt_orphans() that includes whatever lost its parent on the way. One look at /proc is not enough: a process
    may fork and exit between the listing and the reading. That no child is left, the kernel tells at once.
    """
    until = time.monotonic() + wait_s
    quiet = 0
    while quiet < QUIET_LOOKS:
        alive = descendants_of(os.getpid()) - spared
        for pid in alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        _reap(spared)
        if not alive and not _has_children():
            return ()
        quiet = 0 if alive else quiet + 1
        if time.monotonic() > until:
            return tuple(sorted(descendants_of(os.getpid()) - spared))
        time.sleep(0.005)
    return ()


def _reap(spared: frozenset[int]) -> None:
    """Reap every child of this process that has ended, but the spared: those are somebody else's."""
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) and ended.si_pid not in spared:
            os.waitpid(ended.si_pid, os.WNOHANG)


def _has_children() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True
