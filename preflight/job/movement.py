"""Whether a job moves, as far as that costs nothing to see: it writes output, or it reads and writes files.

CPU time tells nothing: a rank that waits in NCCL spins. Where nothing else moves, `preflight stuck` reads stacks.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable

MOVED_BYTES = 1 << 20  # heartbeats and launchers that poll read less between two looks
LOOKS = 10  # in the time after which nothing may have moved
LEAST_S = 0.5  # between two looks
SELDOM_S = 3600.0  # more seldom than this no silent job is looked at


class Movement:
    """Watches one job from a monotonic time on; says when to look closer."""

    def __init__(self, after_s: float, output_bytes: Callable[[], int], pid: int) -> None:
        self._after_s = after_s
        self._output_bytes = output_bytes
        self._pid = pid
        self._seen = (0, 0)
        self._moved_at = self._looked_at = self._asked_at = time.monotonic()

    @property
    def look_s(self) -> float:
        """How long to wait until the next look."""
        return max(LEAST_S, self._after_s / LOOKS)

    @property
    def still_s(self) -> float:
        """How long nothing has moved."""
        return time.monotonic() - self._moved_at

    def stands_still(self) -> bool:
        """Look, and tell whether nothing has moved for as long as it may."""
        now = time.monotonic()
        if now - self._looked_at > 3 * self.look_s + 5:  # we were stopped (Ctrl-Z), and so was the job
            self._moved_at = now
        self._looked_at = now
        output, files = self._output_bytes(), self._seen[1]
        if output == self._seen[0]:  # otherwise it need not be known
            files = bytes_of_job(self._pid)
        if output != self._seen[0] or files - self._seen[1] >= MOVED_BYTES or files < self._seen[1]:
            self._moved_at = now
        self._seen = (output, files)
        return now - max(self._moved_at, self._asked_at) >= self._after_s

    def seen_to_move(self) -> None:
        """Take up the word of who looked closer."""
        self._moved_at = time.monotonic()

    def look_later(self) -> None:
        """Wait longer before the next time that somebody looks closer."""
        self._asked_at = time.monotonic()
        self._after_s = min(2 * self._after_s, max(self._after_s, SELDOM_S))


def bytes_of_job(pid: int) -> int:
    """Return how much a process and its descendants have read and written (/proc/PID/io: rchar, wchar)."""
    children: dict[int, list[int]] = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError, ValueError, IndexError), open(f"/proc/{name}/stat", "rb") as file:
            parent = int(file.read().rpartition(b")")[2].split()[1])
            children.setdefault(parent, []).append(int(name))
    total, waiting = 0, [pid]
    while waiting:
        each = waiting.pop()
        waiting += children.get(each, [])
        with contextlib.suppress(OSError, ValueError, IndexError), open(f"/proc/{each}/io", "rb") as file:
            total += sum(int(line.split()[1]) for line in file.read().splitlines()[:2])
    return total
