"""Limits on every input from outside: bytes, depth and number of values.

Logs are read piece by piece and have no size limit.
"""
# No input within its limits costs more than 500 MB and 5 s.

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from preflight.errors import MalformedInput


@dataclass(frozen=True, slots=True)
class InputLimit:
    """The limits of one kind of input."""

    kind: str
    most_bytes: int
    most_values: int  # JSON and TOML: counted by brackets, commas, colons and "="; a pickle: its operations
    most_depth: int

    def too_large(self) -> str:
        """Return the error text for an input that has too many bytes."""
        size = f"{self.most_bytes >> 20} MiB" if self.most_bytes >> 20 else f"{self.most_bytes >> 10} KiB"
        return f"larger than {size}, which no {self.kind} is"


MIB = 1 << 20
REPORT = InputLimit("report", 32 * MIB, 2_000_000, 60)
BASELINE = InputLimit("baseline", 8 * MIB, 500_000, 20)
POLICY = InputLimit("policy", 1 * MIB, 20_000, 20)
PERFTEST = InputLimit("output of ib_write_bw", 1 * MIB, 0, 0)
CAPTURE = InputLimit("capture", 32 * MIB, 2_000_000, 60)
TOPOLOGY = InputLimit("topology", 1 * MIB, 0, 0)
# An operation makes one value, of at most some hundred bytes beyond the data themselves, and takes a microsecond.
RECORDING = InputLimit("flight recorder dump", 16 * MIB, 1_000_000, 0)
STUCK_NODE = InputLimit("node's evidence", 32 * MIB, 2_000_000, 20)
ARCHIVE = InputLimit("archive of logs", 16384 * MIB, 10_000, 1)  # of what it holds, unpacked; values are files
RUN_RECORD = InputLimit("record of a run", 1 * MIB, 1_000, 4)
MODEL_CONFIG = InputLimit("model configuration", 4 * MIB, 200_000, 40)
NESTED = frozenset((dict, list))  # json and toml make exactly these types


def parse_json(text: str, limit: InputLimit, name: str) -> Any:
    """Return the JSON document in `text`.

    Raise MalformedInput if `text` is not JSON or exceeds `limit`. The error contains `name`, the name of the input.
    """
    check_text(text, limit, name)
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise MalformedInput(f"{name}: not JSON: {_reason(error, text)}") from None
    _refuse_depth(document, limit.most_depth, name)
    return document


def check_text(text: str, limit: InputLimit, name: str) -> None:
    """Raise MalformedInput if `text` exceeds `limit`. The error contains `name`, the name of the input."""
    if len(text) > limit.most_bytes:
        raise MalformedInput(f"{name}: {limit.too_large()}")
    # A text that is shorter than its limit of values can't have more, and need not be counted.
    if 0 < limit.most_values < len(text) and sum(text.count(each) for each in ",[{:=") > limit.most_values:
        raise MalformedInput(f"{name}: more than {limit.most_values} values, which no {limit.kind} has")


def _refuse_depth(document: Any, most: int, name: str) -> None:
    level, depth = [document] if type(document) in NESTED else [], 0
    while level:
        depth += 1
        if depth > most:
            raise MalformedInput(f"{name}: nested too deeply")
        parts = [each.values() if type(each) is dict else each for each in level]
        level = [inner for each in parts for inner in each if type(inner) in NESTED]


def _reason(error: ValueError | RecursionError, text: str) -> str:
    if not text.strip():
        return "it is empty"
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg}, line {error.lineno} column {error.colno}"
    return "nested too deeply" if isinstance(error, RecursionError) else "a number is too long"
