"""A saved report, read again."""

from __future__ import annotations

import json

from preflight.errors import MalformedInput
from preflight.model.codec import decode
from preflight.model.report import Report


def parse_report(text: str, where: str) -> Report:
    """Return the report that `preflight check` wrote; MalformedInput where the text is none."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:  # a number of more than 4300 digits is a ValueError
        what = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise MalformedInput(f"{where}: not JSON: {what}") from None
    try:
        return decode(Report, document)
    except (MalformedInput, RecursionError) as error:
        raise MalformedInput(f"{where}: not a report of `preflight check`: {error}") from None
