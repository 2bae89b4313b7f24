"""Find out in which collective each rank timed out, and which ranks were missing."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from itertools import permutations

from preflight.explain.event import UNKNOWN, by_number

# Matched on text without any white space: terminals wrap these lines in the middle of a word.
WORK = re.compile(
    r"WorkNCCL\((?:SeqNum=(\d{1,20}),)?OpType=([A-Za-z_]{1,40}),(?:NumelIn=(\d{1,20}),NumelOut=(\d{1,20}),)?"
    r"Timeout\(ms\)=(\d{1,12})\)(?:ranfor(\d{1,12})mill)?"
)
STATUS = re.compile(r"lastenqueued(?:NCCL)?work:(-?\d{1,20}),lastcompleted(?:NCCL)?work:(-?\d{1,20})", re.IGNORECASE)
AT_WORK = re.compile(r"(?:atwork|worksequenceid|NCCLwork):(\d{1,20})")
RANK = re.compile(r"\[[Rr]ank(\d{1,6})\]|Rank(\d{1,6})\]")
GROUP = re.compile(r"\[PG(?:ID(\d{1,10})PGGUID([\w-]{1,40})|([\w-]{1,40}))(?:\([\w-]{0,80}\))?Rank(\d{1,6})\]")
DEFAULT_GROUP = "0"
EVERYBODY = ("ALLREDUCE", "ALLGATHER", "REDUCE_SCATTER")  # operations that end on no rank before all have joined
MOST_STATES = 500
CLEARLY = 2  # collectives; a rank may be done with the last one a moment before its neighbour
COALESCED = (1 << 64) - 1  # (size_t)-1: a coalesced send/recv, not a size


@dataclass(frozen=True, slots=True)
class Wait:
    """The wait of one rank for a collective, as reported by the log line about the timeout.

    If `seq` is -2 or the time is 0 ms, the log does not give the value.
    """

    # -2 can occur in `seq`, `numel_in`, `last_enqueued` and `last_completed`.

    rank: str
    group: str = UNKNOWN
    seq: int = -2
    op: str = ""
    numel_in: int = -2
    timeout_ms: int = 0
    ran_for_ms: int = 0
    last_enqueued: int = -2
    last_completed: int = -2

    @property
    def shown(self) -> str:
        """Return the collective as text, such as `ALLREDUCE number 7`.

        The text has no number if the log gives no number.
        """
        return f"{self.op} number {self.seq}" if self.seq >= 0 else self.op


class Waits:
    """The waits for collectives that timed out, as reported by a log: at most one wait per rank and group."""

    LIMIT = 65536

    def __init__(self) -> None:
        self._waits: dict[tuple[str, str], Wait] = {}
        self._group_of: dict[tuple[str, int], str] = {}

    def read(self, line: str, wrapped: str, rank: str) -> Wait | None:
        """Return the wait that a log line reports, and store the wait.

        Return None if the line reports no wait.
        """
        # `rank` is the rank in the prefix of the line. If the text of the line has a rank, this rank counts instead.
        # `wrapped` is the line joined with the following lines. `wrapped` is read only if the line is cut off.
        for text in (line, wrapped):
            packed = "".join(text.split())
            own = RANK.search(packed)
            reporter = next((g for g in own.groups() if g), rank) if own else rank
            group = UNKNOWN
            if found := GROUP.search(packed):
                group, reporter = found[2] or found[1] or found[3], found[4]
            wait = _wait(packed, reporter, group)
            if wait is not None:
                if len(self._waits) < self.LIMIT:
                    self._keep(wait)
                return wait
        return None

    def all(self) -> tuple[Wait, ...]:
        """Return the waits, one per rank and group.

        If a wait has no group, the group comes from another log line.
        """
        merged: dict[tuple[str, str], Wait] = {}
        for wait in self._waits.values():
            group = wait.group or self._group_of.get((wait.rank, wait.seq), UNKNOWN)
            key = (wait.rank, group)
            merged[key] = _merge(merged[key], wait) if key in merged else replace(wait, group=group)
        return tuple(merged.values())

    def _keep(self, wait: Wait) -> None:
        if wait.group and wait.seq >= 0:
            self._group_of.setdefault((wait.rank, wait.seq), wait.group)
        key = (wait.rank, wait.group if not wait.op else f"{wait.group}/{wait.seq}")
        # The first report of a rank is the collective in which it stood; later ones are what failed after it.
        self._waits[key] = _merge(self._waits[key], wait) if key in self._waits else wait


def _wait(packed: str, rank: str, group: str) -> Wait | None:
    work, status, at = WORK.search(packed), STATUS.search(packed), AT_WORK.search(packed)
    if work is None and status is None:
        return None
    wait = Wait(rank, group)
    if work is not None:
        seq, op, numel_in, _, timeout_ms, ran_for_ms = work.groups()
        wait = replace(
            wait, seq=int(seq) if seq else -2, op=op, numel_in=int(numel_in) if numel_in else -2,
            timeout_ms=int(timeout_ms), ran_for_ms=int(ran_for_ms or 0),
        )  # fmt: skip
    if status is not None:
        enqueued, completed = int(status[1]), int(status[2])
        # torch 2.4 prints memory that it has not written as the number of the last completed one.
        wait = replace(wait, last_enqueued=enqueued, last_completed=completed if completed <= enqueued else -2)
        if work is None and at is not None:
            wait = replace(wait, seq=int(at[1]))
    return wait


def _merge(old: Wait, new: Wait) -> Wait:
    """Return a wait with the values of the older record, or of the newer record if the older record lacks them."""
    unknown = [part.name for part in fields(Wait) if getattr(old, part.name) == part.default]
    return replace(old, **{name: getattr(new, name) for name in unknown})


def find_mismatch(waits: Iterable[Wait]) -> tuple[Wait, Wait] | None:
    """Return the waits of two ranks in different collectives with the same group and sequence number, or None."""
    # Sequence numbers of different groups can't be compared. A wait without a known group is compared only if all other
    # waits belong to the default group.
    known = [wait for wait in waits if wait.op and wait.seq >= 0]
    groups = {wait.group for wait in known if wait.group}
    by_place: dict[tuple[str, int], list[Wait]] = defaultdict(list)
    for wait in known:
        if wait.group or not groups - {DEFAULT_GROUP}:
            by_place[wait.group or DEFAULT_GROUP, wait.seq].append(wait)
    for _, (one, *others) in sorted(by_place.items()):
        for other in others:
            if one.rank != other.rank and (one.op != other.op or _sizes_differ(one, other)):
                return one, other
    return None


def find_overtaken(waits: Iterable[Wait]) -> tuple[Wait, Wait] | None:
    """Return two waits if the second rank has completed the collective in which the first rank still waits.

    Return None if no rank has completed a collective in which another rank waits.
    """
    # All ranks of a group must enter a collective before a rank can complete the collective. The two ranks have
    # therefore called different collectives, unless data were lost. A difference of one sequence number proves nothing
    # if either rank has enqueued more collectives.
    # Thousands of ranks are in few states; two of each are enough, and pairs of all ranks would take minutes.
    states: dict[tuple[object, ...], dict[str, Wait]] = defaultdict(dict)
    for wait in waits:
        if wait.seq >= 0 and wait.op:
            states[wait.group, wait.seq, wait.op, wait.last_completed, _stands(wait)].setdefault(wait.rank, wait)
    known = [wait for alike in list(states.values())[:MOST_STATES] for wait in list(alike.values())[:2]]
    for one, other in permutations(known, 2):
        is_joint = one.op.lstrip("_").startswith(EVERYBODY)
        is_unlike = is_joint and one.rank != other.rank and one.group == other.group and one.op != other.op
        if is_unlike and other.last_completed >= one.seq + (0 if _stands(one) and _stands(other) else CLEARLY):
            return one, other
    return None


def _stands(wait: Wait) -> bool:
    """Return whether a rank has enqueued nothing after the collective in which this rank waits.

    If so, the program itself is blocked in that collective.
    """
    return wait.last_enqueued == wait.seq


def _sizes_differ(one: Wait, other: Wait) -> bool:
    sizes = {one.numel_in, other.numel_in}
    # All-to-all and coalesced sends may well differ between ranks; a reduction may not.
    return len(sizes) == 2 and not sizes & {-2, COALESCED} and one.op.startswith(("ALLREDUCE", "ALLGATHER", "_ALLG"))


def behind(waits: Iterable[Wait]) -> tuple[str, ...]:
    """Return the ranks of a group that have enqueued the fewest collectives.

    Return () unless another rank of the group waits in a collective that these ranks did not enqueue.
    """
    by_group: dict[str, list[Wait]] = defaultdict(list)
    for wait in waits:
        if wait.rank and wait.last_enqueued >= 0:
            by_group[wait.group].append(wait)
    for _, members in sorted(by_group.items(), key=lambda item: -len(item[1])):
        low = min(wait.last_enqueued for wait in members)
        if low < max(max(wait.seq, wait.last_completed + 1) for wait in members):
            return by_number(w.rank for w in members if w.last_enqueued == low)
    return ()


def behind_by_seq(waits: Iterable[Wait]) -> tuple[str, ...]:
    """Return the ranks that wait in the earliest collective.

    Return () if at least half of the ranks wait in this collective, or if the waits belong to several groups.
    """
    known = [wait for wait in waits if wait.rank and wait.seq >= 0 and wait.op]
    if len({wait.group for wait in known}) > 1:
        return ()
    counts = Counter(wait.seq for wait in known)
    if len(counts) < 2:
        return ()
    low = min(counts)
    return by_number(w.rank for w in known if w.seq == low) if counts[low] < len(known) / 2 else ()
