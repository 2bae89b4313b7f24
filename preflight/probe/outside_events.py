"""Read how often the kernel has killed a process for want of memory, refused to start one, and met broken memory."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial

from preflight.errors import UnreadableFact
from preflight.model.outside_event import Counts, OutsideKind
from preflight.probe.cgroup import read_oom_kills, read_pids_refusals
from preflight.probe.reading import gap_or
from preflight.system.machine import Machine

# Linux, mm/memory-failure.c and arch/x86/kernel/cpu/mce: what it says when memory has gone bad.
MEMORY_FAILURE = re.compile(r"memory failure: 0x|hardware memory corruption|uncorrected hardware memory error", re.I)


def _read_memory_failures(machine: Machine) -> int:
    return count_memory_failures(machine.ask("kernel_alarms"))


READERS: dict[OutsideKind, tuple[Callable[[Machine], int], str]] = {
    OutsideKind.OOM_KILL: (read_oom_kills, "the cgroup's memory.events"),
    OutsideKind.PIDS_LIMIT: (read_pids_refusals, "the cgroup's pids.events"),
    OutsideKind.MEMORY_FAILURE: (_read_memory_failures, "kernel log"),
}


def probe_outside_events(machine: Machine) -> Counts:
    """Return the counts since the machine or the cgroup began."""
    return {kind: (gap_or(partial(read, machine)), source) for kind, (read, source) in READERS.items()}


def count_memory_failures(lines: object) -> int:
    """Return how many lines of the kernel log tell of broken memory."""
    if not isinstance(lines, list):
        raise UnreadableFact("the kernel log is no list of lines")
    return sum(bool(MEMORY_FAILURE.search(str(line))) for line in lines)
