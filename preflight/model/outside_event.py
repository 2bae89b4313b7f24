"""What the kernel says it did to processes while the ranks ran: whoever died of that did not die of the node's GPUs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from preflight.model.gap import Gap


class OutsideKind(Enum):
    """What ends a process, or keeps one from starting, that has done nothing wrong itself."""

    OOM_KILL = "OOM kills"  # by the kernel, in this cgroup
    PIDS_LIMIT = "processes and threads refused by the pids limit"
    MEMORY_FAILURE = "memory failures"  # of the host's memory, as its kernel log tells them


@dataclass(frozen=True, slots=True)
class OutsideEvent:
    """How often one of these happened during the run."""

    kind: OutsideKind
    times: int
    source: str


Counts = Mapping[OutsideKind, tuple[int | Gap, str]]  # with the source


def events_between(before: Counts, after: Counts) -> tuple[OutsideEvent, ...]:
    """Return what happened between two readings; nothing of what either could not read."""
    found = []
    for kind, (count, source) in after.items():
        earlier = before[kind][0] if kind in before else Gap("not read")
        if isinstance(count, int) and isinstance(earlier, int) and count > earlier:
            found.append(OutsideEvent(kind, count - earlier, source))
    return tuple(found)
