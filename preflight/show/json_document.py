"""JSON documents, for programs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from preflight.model.codec import GAPS, encode
from preflight.model.gap import Gap


def render_json(record: object) -> str:
    """Return a record as JSON text in ASCII, with a list of the missing values and the reasons."""
    return dump(encode(record))


def part(name: str, record: object, gaps: list[dict[str, str]]) -> dict[str, Any] | None:
    """Return `record` as the JSON part `name` of a document, or None if the record is missing.

    The missing values are added to the list `gaps`.
    """
    if isinstance(record, Gap):
        gaps.append({"fact": name, "reason": record.reason})
    if record is None or isinstance(record, Gap):
        return None
    encoded = encode(record)
    gaps += below(name, encoded.pop(GAPS))
    return encoded


def below(name: str, gaps: Sequence[dict[str, str]]) -> list[dict[str, str]]:
    """Return the missing values of the part `name`, with `name.` in front of each path."""
    return [{"fact": f"{name}.{gap['fact']}", "reason": gap["reason"]} for gap in gaps]


def dump(document: dict[str, Any]) -> str:
    """Return a document as indented JSON text in ASCII."""
    # A NaN is not JSON; ASCII survives every locale and every lone surrogate of a file name.
    return json.dumps(document, indent=2, ensure_ascii=True, allow_nan=False) + "\n"
