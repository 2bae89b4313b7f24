"""Time that did not pass for us: a freezer, SIGSTOP or a VM's migration stops a run without anything hanging."""

from __future__ import annotations

import time

GAP_S = 1.0  # more than a loop that looks every few milliseconds is late by on a busy machine


class OwnTime:
    """What a loop that looks often sees of the time in which it did not run."""

    def __init__(self) -> None:
        self.lost_s = 0.0  # in all
        self._looked_at = time.monotonic()

    def look(self, waited_s: float = 0.0) -> float:
        """Return for how long this process did not run since the last look; `waited_s` of it were meant."""
        now = time.monotonic()
        gap_s = now - self._looked_at - waited_s
        self._looked_at = now
        if gap_s < GAP_S:
            return 0.0
        self.lost_s += gap_s
        return gap_s
