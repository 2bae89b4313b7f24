"""Read the JSON report that `preflight stuck` wrote during a hang, as evidence in addition to the logs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from preflight.errors import MalformedInput
from preflight.model.input_limits import STUCK_NODE, parse_json
from preflight.model.stuck import NOT_YET
from preflight.model.units import capitalized

BEGINS = re.compile(rb'\s{0,9}\{\s{0,9}"schema_version": ?\d{1,4},\s{0,9}"verdict": ?"(?:stuck|not_stuck|unknown)",')
CLOCK = re.compile(r"T(\d\d:\d\d:\d\d)")
WORKING = re.compile(rf"{NOT_YET}: (.{{1,400}}?)\. Wait\b", re.DOTALL)
MOST_TEXTS, CHARS = 8, 400


@dataclass(frozen=True, slots=True)
class StuckAnswer:
    """The rank that blocked the other ranks, and the reason, from a report of `preflight stuck`."""

    name: str  # of the file
    size_bytes: int
    what: str
    rank: str  # "" if there are several, or none
    evidence: tuple[str, ...]
    steps: tuple[str, ...]
    clock: str  # of the day, UTC; "" if the answer does not say
    works: bool = False  # the rank made progress; the others waited for it


def is_stuck_report(head: bytes) -> bool:
    """Return whether `head`, the first bytes of a file, looks like a JSON report of `preflight stuck`."""
    return bool(BEGINS.match(head))


def read_stuck(name: str, data: bytes) -> StuckAnswer | None:
    """Return the first culprit in `data`, a report of `preflight stuck`, or None if the report names no rank.

    Raise MalformedInput if `data` is not a report.
    """
    # If the report has no culprit, return the rank that works while the other ranks wait. `name` is the name of the
    # file.
    document = parse_json(data.decode("utf-8", "replace"), STUCK_NODE, name)
    if not isinstance(document, dict):
        return None
    first, ranks = _named(document, name)
    if first is None:
        return None
    what, nodes = first["what"], document.get("nodes")
    taken_at = nodes[0].get("taken_at") if isinstance(nodes, list) and nodes and isinstance(nodes[0], dict) else ""
    clock = CLOCK.search(taken_at) if isinstance(taken_at, str) else None
    return StuckAnswer(
        name=name,
        size_bytes=len(data),
        what=_line(what),
        rank=str(ranks[0]) if isinstance(ranks, list) and len(ranks) == 1 and isinstance(ranks[0], int) else "",
        evidence=tuple(_texts(first.get("evidence"))),
        steps=tuple(_texts(first.get("steps"))),
        clock=clock[1] if clock else "",
        works=document.get("verdict") != "stuck",
    )


def _named(document: dict[str, Any], name: str) -> tuple[dict[str, Any] | None, object]:
    """Return the first culprit of a report, or the working rank if the report has no culprit.

    The result is a pair: a record with the text `what`, and the ranks. Both are None if the report names no rank.
    """
    if document.get("verdict") == "stuck":
        culprits = document.get("culprits")
        first = culprits[0] if isinstance(culprits, list) and culprits else None
        if not isinstance(first, dict) or not isinstance(what := first.get("what"), str) or not what.strip():
            raise MalformedInput(f"{name}: it says stuck, but names no rank")
        return first, first.get("ranks")
    summary, places = document.get("summary"), document.get("places")
    found = WORKING.match(summary) if isinstance(summary, str) else None
    if found is None:
        return None, None
    working = (
        [each.get("rank") for each in places if isinstance(each, dict) and each.get("works")]
        if (isinstance(places, list))
        else []
    )
    return {"what": capitalized(found[1])}, working


def _texts(value: object) -> Iterator[str]:
    for each in value[:MOST_TEXTS] if isinstance(value, list) else ():
        if isinstance(each, str) and each.strip():
            yield ("    " if each.startswith("    ") else "") + _line(each)


def _line(text: str) -> str:
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())[:CHARS]
