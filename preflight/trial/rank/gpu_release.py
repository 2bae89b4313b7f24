"""Wait until the memory of a killed rank's GPU context is free again, before the next test run."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Mapping, Sequence

from preflight.system.crew import Crew

START_S, ANSWER_S = 5.0, 2.0  # the first answer may wait for the driver to load
RELEASE_S = 10.0
POLL_S = 0.1
KEEPER = "keeper"
SLACK_BYTES = 64 << 20  # less than any CUDA context, more than what a driver's own books move


class GpuKeeper:
    """A child process that keeps NVML open and reports used GPU memory.

    After one late answer, preflight asks no more questions and no longer waits for memory.
    """

    def __init__(self, uuids: Sequence[str], command: Sequence[str] = ()) -> None:
        self._uuids = tuple(uuids)
        keeper = command or [sys.executable, "-m", "preflight.system.nvml_keeper"]
        self._silent = False
        self._crew = Crew[str]()
        self._crew.start(KEEPER, keeper, os.environ)
        self._before = self._used(START_S)

    def wait_until_released(self, within_s: float = RELEASE_S) -> str:
        """Wait until the GPUs use no more memory than before the first test run, at most `within_s` seconds.

        If the memory is free or the GPUs can't be queried, return "". Otherwise return a text on the memory that is
        still in use.
        """
        until = time.monotonic() + within_s
        while True:
            held = still_held(self._before, self._used(ANSWER_S))
            if not held:
                return ""
            if time.monotonic() > until:
                return f"{held} {within_s:.0f} s after it was killed"
            time.sleep(POLL_S)

    def close(self) -> None:
        """End the process that keeps NVML open."""
        self._crew.end(KEEPER)

    def _used(self, within_s: float) -> dict[str, int]:
        """Return the memory in use in bytes, by GPU UUID.

        If no answer comes within `within_s` seconds, this call and all later calls return {}.
        """
        if self._silent:
            return {}
        with contextlib.suppress(OSError, TypeError):
            self._crew.ask(KEEPER, {})  # without a limit: one that is late still keeps the driver loaded
            for _, used, lost in self._crew.listen(within_s):
                if not lost:
                    return {uuid: used[uuid] for uuid in self._uuids if uuid in used}
        self._silent = True
        return {}


def still_held(before: Mapping[str, int], now: Mapping[str, int]) -> str:
    """Return a text on the GPUs that hold clearly more memory in `now` than in `before`, or "".

    Both mappings have the used bytes by GPU UUID.
    """
    more = {uuid: now[uuid] - before[uuid] for uuid in now if uuid in before and now[uuid] - before[uuid] > SLACK_BYTES}
    sizes = ", ".join(f"{uuid} {size >> 20} MiB" for uuid, size in sorted(more.items()))
    return f"memory was not given back: {sizes}" if sizes else ""
