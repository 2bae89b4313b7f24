"""Processes: dying with the parent, killing without leaving anything, and what /proc says of a pid."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Iterable

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
GONE = ("", "Z", "X")  # states of a process that needs no killing

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


def descendants_of(pid: int) -> frozenset[int]:
    """Return every living process below `pid`, without itself: one pass over /proc, by the parents that it names."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            children.setdefault(_parent(int(entry)), []).append(int(entry))
    found: set[int] = set()
    waiting = [pid]
    while waiting:
        for child in children.get(waiting.pop(), ()):
            if child not in found:
                found.add(child)
                waiting.append(child)
    return frozenset(each for each in found if state(each) not in GONE)


def kill_descendants(spared: frozenset[int], wait_s: float) -> tuple[int, ...]:
    """SIGKILL and reap every process below this one but the spared; return the pids that would not die.

    With adopt_orphans() that includes whatever lost its parent on the way. Looked for again until none is left, since
    one may fork while another is killed.
    """
    until = time.monotonic() + wait_s
    killed: set[int] = set()
    while alive := descendants_of(os.getpid()) - spared:
        for pid in alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        killed |= alive
        _reap(killed)
        if time.monotonic() > until:
            return tuple(sorted(descendants_of(os.getpid()) - spared))
        time.sleep(0.005)
    _reap(killed)
    return ()


def _reap(pids: Iterable[int]) -> None:
    """Reap those that have ended and are, or have become, children of this process."""
    for pid in pids:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)


def _parent(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return int(file.read().rpartition(")")[2].split()[1])
    except (OSError, IndexError, ValueError):
        return 0
