"""Counters of the hardware and the kernel, read before and after a run.

Only the increase during the run is judged.
"""
# The hardware counts errors and bytes. The kernel counts processes that it killed or kept from starting.

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from preflight.model.gap import Gap
from preflight.model.word import Word


class CounterKind(Word):
    """The meaning of a counter for the verdict if the counter grew during a run."""

    FATAL = "fatal"  # an error that corrupts or ends a job: uncorrected ECC, Xid, fatal AER, a link that went down
    SURVIVED = "survived"  # an error that ends no job but is not normal: a retrained link, a refused request
    REPAIRED = "repaired"  # an error that was corrected or repeated: a few are normal, many are a bad cable or seat
    TRAFFIC = "traffic"  # bytes


KERNEL_LOG = "kernel log"
XIDS, XID = "xids", "xid_"  # the counter of all Xids; the prefix of the counter of one Xid
OF_PROCESS = "_of_"  # precedes the process in the name of Xid 45's counter, if the log names the process
ON_BUS = "PCI "  # prefix of the subject of a GPU for which the kernel log gives only the address
NOT_KEPT = "the kernel keeps no"  # prefix of a gap's reason if the kernel has no such counter, which is no fault


@dataclass(frozen=True, slots=True)
class Counter:
    """The value of one counter at one moment."""

    subject: str  # "GPU 3", "mlx5_0:1", "eth0", "0000:1b:00.0"
    name: str
    kind: CounterKind
    value: int | Gap
    source: str
    gpu: int = -1  # nvml_index; -1 if the counter belongs to no GPU


@dataclass(frozen=True, slots=True)
class CounterChange:
    """The increase of a counter during the run."""

    subject: str
    name: str
    kind: CounterKind
    before: int | Gap
    after: int | Gap
    grown: int | Gap
    source: str
    gpu: int


def changes(before: tuple[Counter, ...], after: tuple[Counter, ...]) -> tuple[CounterChange, ...]:
    """Return the change of each counter from `before` to `after`.

    If a counter was reset during the run, its increase is a Gap.
    """
    first = {(each.subject, each.name): each for each in before}
    last = {(each.subject, each.name): each for each in after}
    return tuple(_change(first.get(key), last.get(key)) for key in dict.fromkeys([*first, *last]))


def _change(before: Counter | None, after: Counter | None) -> CounterChange:
    either = after or before
    assert either is not None  # the key is of one of them
    # What the kernel log did not hold had not happened.
    absent: int | Gap = 0 if either.source == KERNEL_LOG else Gap("it was not there before the run")
    was = before.value if before else absent
    now: int | Gap = after.value if after else Gap("it was not there after the run")
    grown = _grown(was, now)
    return CounterChange(either.subject, either.name, either.kind, was, now, grown, either.source, either.gpu)


def _grown(was: int | Gap, now: int | Gap) -> int | Gap:
    if isinstance(was, Gap):
        return was
    if isinstance(now, Gap):
        return now
    return Gap(f"it fell from {was} to {now}: it was reset during the run") if now < was else now - was


class OutsideKind(Word):
    """A kind of event that ends a process, or keeps it from starting, without a fault of the process."""

    OOM_KILL = "OOM kills"  # by the kernel, in this cgroup
    PIDS_LIMIT = "processes and threads refused by the pids limit"
    MEMORY_FAILURE = "memory failures"  # of the host's memory, according to its kernel log


@dataclass(frozen=True, slots=True)
class OutsideEvent:
    """A kind of event outside the job's processes (such as an OOM kill), and how often it happened during the run."""

    kind: OutsideKind
    times: int
    source: str


Counts = Mapping[OutsideKind, tuple[int | Gap, str]]  # with the source


def events_between(before: Counts, after: Counts) -> tuple[OutsideEvent, ...]:
    """Return the events between two readings of the counters, with the number of each event.

    A counter that is missing in one reading gives no event.
    """
    found = []
    for kind, (count, source) in after.items():
        earlier = before[kind][0] if kind in before else Gap("not read")
        if isinstance(count, int) and isinstance(earlier, int) and count > earlier:
            found.append(OutsideEvent(kind, count - earlier, source))
    return tuple(found)
