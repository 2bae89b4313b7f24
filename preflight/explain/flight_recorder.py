"""Read torch's flight recorder dumps (`nccl_trace_rank_N`), which show the last collectives of each rank.

The dumps are pickles, and are loaded without running code.
"""
# `plain_pickle` loads only plain values, and refuses everything that could run code.

from __future__ import annotations

import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from preflight.errors import MalformedInput
from preflight.explain.event import by_number
from preflight.explain.plain_pickle import load_plain

MAGIC = re.compile(rb"\x80[\x02-\x05]")
NAME = re.compile(r"nccl_trace_rank_?(\d{1,6})|rank_?(\d{1,6})")
KEPT_PER_GROUP = 200  # the last collectives of a rank; where ranks parted lies among them


@dataclass(frozen=True, slots=True)
class Entry:
    """A collective that a rank has enqueued: its group, sequence number, name and sizes."""

    group: str
    seq: int
    name: str
    sizes: str


@dataclass(frozen=True, slots=True)
class Recording:
    """A rank's flight recorder dump, reduced to the last collectives of each group."""

    source: str
    rank: str
    entries: tuple[Entry, ...]
    size_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Lag:
    """The ranks of a group that enqueued only `seq` collectives, while another rank enqueued `ahead_seq`."""

    # `missing` is the name of the first collective that the ranks behind did not enqueue. If this name is unknown,
    # `missing` is the last collective of another rank.

    group: str
    ranks: tuple[str, ...]
    seq: int  # the number of the last collective that they enqueued
    ahead_seq: int
    missing: str  # the collective that they did not join


@dataclass(frozen=True, slots=True)
class Clash:
    """Two ranks that enqueued different collectives under the same sequence number `seq`.

    `one` and `other` are pairs of a rank and its collective.
    """

    # `differ` has all ranks that differ from the majority. `differ` is empty if there is no majority.

    seq: int
    one: tuple[str, str]
    other: tuple[str, str]
    differ: tuple[str, ...]  # the ranks that differ from the majority; empty if there is no majority


def is_recording(name: str, head: bytes) -> bool:
    """Return whether a file looks like a flight recorder dump, by its `name` or by `head`, its first bytes."""
    return bool(MAGIC.match(head)) or "nccl_trace_rank" in name.rsplit("/", 1)[-1]


def read_recording(source: str, data: bytes, kept_per_group: int = KEPT_PER_GROUP) -> Recording:
    """Return the last collectives of each group in `data`, a flight recorder dump from the file `source`.

    Raise MalformedInput if `data` is not a dump, is too large, or contains anything but plain types.
    """
    document = load_plain(source, data)
    if not isinstance(document, dict) or not isinstance(document.get("entries"), list):
        raise MalformedInput(f"{source}: not a flight recorder dump, because it has no list of entries")
    match = NAME.search(source.rsplit("/", 1)[-1])
    rank = document.get("rank")
    shown = str(rank) if isinstance(rank, int) else next((g for g in match.groups() if g), "") if match else ""
    counts: Counter[str] = Counter()
    entries: list[Entry] = []
    for item in reversed(document["entries"]):
        entry = _entry(item)
        if entry is not None and counts[entry.group] < kept_per_group:
            counts[entry.group] += 1
            entries.append(entry)
    return Recording(source, shown, tuple(reversed(entries)), len(data))


def _entry(item: object) -> Entry | None:
    if not isinstance(item, dict):
        return None
    group = item.get("process_group", item.get("pg_id", ""))
    seq = item.get("collective_seq_id", item.get("seq_id"))
    if not isinstance(seq, int) or item.get("is_p2p") is True:
        return None
    first = group[0] if isinstance(group, (list, tuple)) and group else group
    return Entry(_plain(first), seq, _plain(item.get("profiling_name")), _sizes(item))


def _plain(value: object) -> str:
    """Return a text or a number as a short text, or "" for any other value.

    Nested values are left out, because their text can be endless.
    """
    return sys.intern(str(value)[:80]) if isinstance(value, (str, int)) else ""


def _sizes(item: dict[Any, Any]) -> str:
    sizes = item.get("input_sizes")
    if not isinstance(sizes, (list, tuple)):
        return ""
    shown = [
        list(size[:8]) for size in sizes[:4] if isinstance(size, (list, tuple)) and all(type(n) is int for n in size)
    ]
    return sys.intern(str(shown)[:120])


def find_lag(recordings: Iterable[Recording]) -> Lag | None:
    """Return the ranks that enqueued fewer collectives than other ranks of their group, or None if no rank did."""
    for group, ends in sorted(_last_by_group(recordings).items()):
        if len(ends) < 2:
            continue
        low, high = min(e.seq for e in ends.values()), max(e.seq for e in ends.values())
        if low < high:
            ranks = by_number(rank for rank, e in ends.items() if e.seq == low)
            there = (e.name for r in recordings for e in r.entries if e.group == group and e.seq == low + 1)
            missing = next(there, "") or next(e.name for e in ends.values() if e.seq == high)
            return Lag(group, ranks, low, high, missing)
    return None


def find_clash(recordings: Iterable[Recording]) -> Clash | None:
    """Return two ranks that enqueued different calls under the same group and sequence number.

    The calls differ in the collective, or in the sizes of an all_reduce. Return None if all calls are equal.
    """
    # If more than half of the ranks agree, the first of the two ranks differs from the majority.
    held: dict[tuple[str, int], dict[str, Entry]] = defaultdict(dict)
    for recording in recordings:
        for entry in recording.entries:
            held[entry.group, entry.seq].setdefault(recording.rank, entry)
    for (_, seq), entries in held.items():
        has_sizes = all("all_reduce" in each.name and each.sizes for each in entries.values())
        works = {rank: f"{each.name} {each.sizes}" if has_sizes else each.name for rank, each in entries.items()}
        usual, count = Counter(works.values()).most_common(1)[0]
        if count == len(works):
            continue
        agrees = next(rank for rank, work in works.items() if work == usual)
        differ = by_number(rank for rank, work in works.items() if work != usual)
        one, other = ((rank, f"{entries[rank].name} {entries[rank].sizes}".strip()) for rank in (differ[0], agrees))
        return Clash(seq, one, other, differ if 2 * count > len(works) else ())
    return None


def _last_by_group(recordings: Iterable[Recording]) -> dict[str, dict[str, Entry]]:
    ends: dict[str, dict[str, Entry]] = defaultdict(dict)
    for recording in recordings:
        for entry in recording.entries:
            if entry.seq > ends[entry.group].setdefault(recording.rank, entry).seq:
                ends[entry.group][recording.rank] = entry
    return ends
