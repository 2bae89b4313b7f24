"""Extract the message and the time from logs with one JSON record per line.

Line breaks within a message become carriage returns, so that line numbers stay valid.
"""
# Supported formats are Docker's json-file, journald, Fluent Bit, Filebeat, Vector, Loki, Google Cloud, CloudWatch,
# Datadog, OpenTelemetry and structlog.

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from datetime import datetime, timezone
from typing import Any

MESSAGES = ("MESSAGE", "message", "textPayload", "log", "msg", "line", "body", "event", "_raw", "content")
NESTED = ("jsonPayload", "result", "attributes", "content", "body", "fields", "_source")
TIMES = ("@timestamp", "timestamp", "time", "ts", "__REALTIME_TIMESTAMP", "_time", "date", "observedTimestamp",
         "timeUnixNano", "eventTime")  # fmt: skip
# A record has one of these beside its message; an object without is data, not a log.
MARKS = (*TIMES, "level", "severity", "stream", "PRIORITY", "kubernetes", "logger")
LOOKED_AT_LINES = 20
LONGEST_LINE = 1 << 20  # a longer line is read as plain text
EPOCHS = ((1e17, 1e9), (1e14, 1e6), (1e11, 1e3), (1e8, 1.0))  # nanoseconds, microseconds, milliseconds, seconds


def plain_lines(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the pieces of a log. If the first lines are JSON records, yield the text of each record instead."""
    rest = iter(pieces)
    head = b""
    for piece in rest:
        head += piece
        if head.count(b"\n") >= LOOKED_AT_LINES or len(head) > LONGEST_LINE:
            break
    lines = [line for line in head.split(b"\n", LOOKED_AT_LINES)[:LOOKED_AT_LINES] if line.strip()]
    is_structured = bool(lines) and 2 * sum(text_of(line) is not None for line in lines) > len(lines)
    if not is_structured:
        yield head
        yield from rest
        return
    del lines
    carry = b""
    for piece in _with_head(head, rest):
        *whole, carry = (carry + piece).split(b"\n")
        yield b"".join(_shown(line) + b"\n" for line in whole)
        if len(carry) > LONGEST_LINE:
            yield carry
            carry = b""
    if carry:
        yield _shown(carry)


def text_of(line: bytes) -> str | None:
    """Return the time and the message of a JSON log record as one text, or None for any other line."""
    stripped = line.strip().rstrip(b",")
    if not stripped.startswith(b"{") or len(stripped) > LONGEST_LINE:
        return None
    try:
        record = json.loads(stripped)
    except (ValueError, RecursionError):
        return None
    if not isinstance(record, dict) or not any(mark in record for mark in MARKS):
        return None
    message = _message(record)
    if message is None:
        return None
    moment = _moment(record)
    return f"{moment} {message}" if moment else message


def _with_head(head: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    yield head
    yield from rest


def _shown(line: bytes) -> bytes:
    text = text_of(line)
    if text is None:
        return line
    return text.rstrip("\r\n").replace("\r\n", "\r").replace("\n", "\r").encode("utf-8", "replace")


def _message(record: dict[str, Any], depth: int = 0) -> str | None:
    for name in MESSAGES:
        value = record.get(name)
        if isinstance(value, str):
            return value
        if name == "MESSAGE" and isinstance(value, list):  # journald writes bytes that are no UTF-8 as numbers
            return bytes(n for n in value if isinstance(n, int) and 0 <= n < 256).decode("utf-8", "replace")
    if isinstance(value := record.get("stringValue"), str):
        return value
    inner = (record[name] for name in NESTED if depth < 2 and isinstance(record.get(name), dict))
    return next((found for each in inner if (found := _message(each, depth + 1)) is not None), None)


def _moment(record: dict[str, Any]) -> str:
    """Return the record's time as ISO 8601.

    A number counts as seconds since 1970, or as milli-, micro- or nanoseconds.
    """
    value = next((record[name] for name in TIMES if name in record), "")
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return ""
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return str(value)[:40] if isinstance(value, str) else ""
    scale = next((each for least, each in EPOCHS if number >= least), 0.0)
    if not scale or number / scale > 1e11:
        return ""
    return (
        datetime.fromtimestamp(number / scale, timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    )
