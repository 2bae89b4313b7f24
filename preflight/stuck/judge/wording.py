"""Ranks, places and durations in words."""

from __future__ import annotations

from collections.abc import Sequence

from preflight.model.stuck import Activity, RankPlace

SHOWN = {
    Activity.COLLECTIVE: "in", Activity.STARTING: "starting:", Activity.SAVE: "in a save:", Activity.LOAD: "loading:",
    Activity.EVALUATION: "in evaluation:", Activity.DATA_LOADING: "waiting for data:", Activity.COMPILING: "compiling:",
    Activity.IMPORTING: "importing:", Activity.FILE_LOCK: "waiting for a file lock:",
    Activity.LOCK: "waiting for a lock:",
    Activity.GIL: "holding or waiting for the GIL:", Activity.FILE_IO: "in a file operation:",
    Activity.NETWORK_IO: "waiting for the network:", Activity.SUBPROCESS: "waiting for a child process:",
    Activity.SLEEPING: "sleeping:", Activity.BACKWARD: "computing in", Activity.GPU_WORK: "waiting for",
    Activity.IDLE: "idle in",
    Activity.PYTHON: "in Python code:", Activity.ENDING: "ending:", Activity.STOPPED: "stopped:",
    Activity.DEAD: "dead:", Activity.MISSING: "missing:", Activity.UNSEEN: "unseen:",
}  # fmt: skip
MOST_RANKS = 8


def rank_names(places: Sequence[RankPlace]) -> str:
    """Return `rank 3`, `ranks 1, 2` or the pid of a rank whose number is not known."""
    numbers = sorted(p.rank for p in places if isinstance(p.rank, int))
    unknown = [f"process {p.pid}" for p in places if not isinstance(p.rank, int)]
    more = f" and {len(numbers) - MOST_RANKS} more" if numbers[MOST_RANKS:] else ""
    shown = ", ".join(map(str, numbers[:MOST_RANKS])) + more
    head = f"rank{'s' if len(numbers) > 1 else ''} {shown}" if numbers else ""
    return ", ".join(filter(None, [head, *unknown]))


def whereabouts(place: RankPlace) -> str:
    """Return where a rank stands, as what follows `is`."""
    at = f" ({place.at})" if place.at else ""
    within = f", within {place.within.replace('_', ' ')}" if place.within else ""
    time = f", for {duration(place.for_s)}" if place.stands and isinstance(place.for_s, float) else ""
    detail = f", {place.detail}" if place.detail else ""
    return f"{SHOWN[place.activity]} {place.doing}{at}{within}{detail}{time}"


def waits_in(place: RankPlace) -> str:
    """Return `in all_reduce`, or `for the GPU` where the collective runs there."""
    return f"for {place.doing}" if place.activity is Activity.GPU_WORK else f"in {place.doing}"


def duration(seconds: float) -> str:
    """Return `40 s`, `41 min` or `3.5 h`."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
