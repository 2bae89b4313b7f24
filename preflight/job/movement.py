"""Find out cheaply whether a job makes progress, which means that the job prints, or reads or writes files."""
# CPU time shows nothing, because a rank that waits in NCCL spins. If there is no progress, `preflight stuck` reads the
# stacks of the processes.

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from enum import Enum, auto

from preflight.system.processes import descendants_of

MOVED_BYTES = 1 << 20  # heartbeats and launchers that poll read less between two looks
LOOKS = 10  # in the time after which nothing may have moved
LEAST_S = 0.5  # between two looks
SELDOM_S = 3600.0  # more seldom than this no silent job is looked at
EARLY_S, OWN_PACE = 60.0, 4.0  # an early look comes after so long, and after so many times its longest pause so far


class Look(Enum):
    """Whether `preflight stuck` should examine the job now, and for what reason."""

    NO = auto()
    EARLY = auto()  # it was never silent for so long; nothing is printed
    DUE = auto()
    AGAIN = auto()  # it was found stuck, and has made progress since


class Movement:
    """A monitor that decides when `preflight stuck` should examine a job.

    After `after_s` seconds without progress, an examination is due.
    """

    # The time starts when the object is created. `clock` returns seconds. A replay of a log has its own clock.

    def __init__(
        self, after_s: float, output_bytes: Callable[[], int], pid: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._clock = clock
        self._after_s = after_s
        self._output_bytes = output_bytes
        self._pid = pid
        self._seen = (0, 0)
        self._longest_s = 0.0  # nothing moved, and yet it was not stuck
        self._is_found_stuck = False
        self._moved_at = self._looked_at = self._asked_at = self._clock()

    @property
    def look_s(self) -> float:
        """Return the time between two measurements of the job's progress, in seconds."""
        return max(LEAST_S, self._after_s / LOOKS)

    @property
    def still_s(self) -> float:
        """Return the time since the job's last progress, in seconds."""
        return self._clock() - self._moved_at

    def look(self) -> Look:
        """Return whether `preflight stuck` should examine the job now, and measure progress if that is due."""
        now = self._clock()
        if now - self._looked_at < self.look_s:
            return Look.NO
        if now - self._looked_at > 3 * self.look_s + 5:  # we were stopped (Ctrl-Z), and so was the job
            self._moved_at = now
        self._looked_at = now
        output, files = self._output_bytes(), self._seen[1]
        if output == self._seen[0]:  # otherwise it need not be known
            files = bytes_of_job(self._pid)
        if output != self._seen[0] or files - self._seen[1] >= MOVED_BYTES or files < self._seen[1]:
            self._longest_s = max(self._longest_s, 0.0 if self._is_found_stuck else now - self._moved_at)
            self._moved_at = now
        self._seen = (output, files)
        return self._asks(now)

    def _asks(self, now: float) -> Look:
        still_s = now - max(self._moved_at, self._asked_at)
        if still_s >= self._after_s:
            return Look.DUE
        if self._is_found_stuck:
            is_time = now - self._asked_at >= self.look_s
            return Look.AGAIN if is_time and self._moved_at > self._asked_at else Look.NO
        return Look.EARLY if still_s >= max(EARLY_S, OWN_PACE * self._longest_s) else Look.NO

    def examined(self) -> None:
        """Record that an examination ended.

        Without this call, the time of the examination would count as a time in which preflight was stopped.
        """
        self._looked_at = self._clock()

    def found_moving(self) -> None:
        """Record that an examination found progress."""
        now = self._clock()
        if not self._is_found_stuck:
            self._longest_s = max(self._longest_s, now - self._moved_at)
        self._is_found_stuck = False
        self._moved_at = now

    def found_stuck(self) -> None:
        """Record that an examination found the job stuck."""
        self._is_found_stuck = True

    def found_nothing(self) -> None:
        """Record that an early examination was inconclusive. The next examination then waits for a longer silence."""
        self._longest_s = max(self._longest_s, self.still_s)

    def look_later(self) -> None:
        """Double the time without progress after which an examination is due, up to an hour."""
        self._asked_at = self._clock()
        self._after_s = min(2 * self._after_s, max(self._after_s, SELDOM_S))


def bytes_of_job(pid: int) -> int:
    """Return how many bytes the process `pid` and its descendants have read and written so far.

    The numbers are rchar and wchar of /proc/PID/io.
    """
    total = 0
    family: tuple[int, ...] = (pid,)
    with contextlib.suppress(OSError):  # too many open files
        family = (pid, *descendants_of(pid))
    for each in family:
        with contextlib.suppress(OSError, ValueError, IndexError), open(f"/proc/{each}/io", "rb") as file:
            total += sum(int(line.split()[1]) for line in file.read().splitlines()[:2])
    return total
