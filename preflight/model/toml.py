"""A TOML parser for every Python version that preflight supports."""

from __future__ import annotations

import sys
from typing import Any

from preflight.errors import MalformedInput
from preflight.model.input_limits import POLICY, check_text

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


MOST_PARTS = 64  # of a dotted key: the library's time grows with their square


def read_toml(text: str, source: str) -> dict[str, Any]:
    """Return the tables in the TOML text `text`.

    Raise MalformedInput if the text is not valid. The message names `source`.
    """
    check_text(text, POLICY, source)
    if any(line.partition("=")[0].count(".") > MOST_PARTS for line in text.splitlines()):
        raise MalformedInput(f"{source}: no TOML of ours: a key has more than {MOST_PARTS} parts")
    try:
        tables: dict[str, Any] = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # ValueError: a number of more digits than Python reads
        raise MalformedInput(f"{source}: no TOML: {error}") from None
    return tables
