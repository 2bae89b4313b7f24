"""Text for the terminal: functions that clean, cut and wrap text."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from enum import Enum
from typing import TypeVar

from preflight.model.gap import Gap

INDENT = "  "
UNKNOWN = "?"  # a fact that could not be read; its reason is elsewhere
T = TypeVar("T")


class Detail(Enum):
    """The amount of a page that is printed."""

    VERDICT = "the verdict's line"
    SCREEN = "one screen"
    ALL = "everything"


@dataclass(frozen=True, slots=True)
class Style:
    """The properties of the terminal: its width, and whether it supports colors and Unicode."""

    width: int = 80
    colour: bool = False
    unicode: bool = True


def clean(text: str) -> str:
    """Return `text` with invisible or harmful characters made visible, such as ESC, CR and lone surrogates."""
    return "".join(char if _is_harmless(char) else _escape(char) for char in text)


def line(text: str) -> str:
    """Return text from outside as a single line, with invisible or harmful characters made visible."""
    return clean(" ".join(text.split()))


def fact_text(value: T | Gap, show: Callable[[T], str] = str, gap: str = UNKNOWN) -> str:
    """Return `show(value)`, or `gap` if the value could not be read."""
    return gap if isinstance(value, Gap) else show(value)


def width_of(text: str) -> int:
    """Return how many terminal columns a cleaned text takes."""
    return sum(_columns(char) for char in text)


def shorten(text: str, width: int) -> str:
    """Return cleaned text in at most `width` columns, with an ellipsis if it was cut."""
    if width_of(text) <= width:
        return text
    return _head(text, max(0, width - 1)) + "…"


def wrap(text: str, width: int, first: str = "", rest: str | None = None) -> list[str]:
    """Wrap cleaned text into lines of at most `width` columns. Longer words are cut.

    `first` and `rest` are the indents of the first line and of the other lines.
    """
    rest = first if rest is None else rest
    lines: list[str] = []
    line, empty = first, True
    for word in text.split(" "):
        if not word:
            continue
        if not empty and width_of(line) + 1 + width_of(word) > width:
            lines, line, empty = [*lines, line], rest, True
        pieces = _cut(word, max(1, width - max(width_of(line), width_of(rest)))) if empty else [word]
        for i, piece in enumerate(pieces):
            if i:
                lines, line = [*lines, line], rest
            line = line + piece if empty or i else f"{line} {piece}"
        empty = False
    return [*lines, line]


def ranges(numbers: Sequence[int]) -> str:
    """Return the numbers as text with ranges, such as `0-3,8` for 0, 1, 2, 3 and 8."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][-1] + 1:
            runs[-1] = [runs[-1][0], number]
        else:
            runs.append([number])
    return ",".join("-".join(map(str, run)) for run in runs) or "none"


def rfc3339(created_at: str) -> str:
    """Return a time in the form `2026-10-05T12:00:00Z`.

    Return "" if `created_at` is not a time or has no time zone.
    """
    try:
        at = datetime.fromisoformat(created_at.replace("Z", "+00:00"))
        return at.astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ") if at.tzinfo and at.year >= 1000 else ""
    except (ValueError, OverflowError):
        return ""


def _is_harmless(char: str) -> bool:
    # Combining marks are printable, take no column, and many of them smear over the lines around.
    return char.isprintable() and unicodedata.category(char) not in ("Mn", "Me")


def _escape(char: str) -> str:
    code = ord(char)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _columns(char: str) -> int:
    return 2 if unicodedata.east_asian_width(char) in ("W", "F") else 1


def _head(text: str, width: int) -> str:
    """Return the longest prefix of a text that fits into `width` columns."""
    used = 0
    for i, char in enumerate(text):
        used += _columns(char)
        if used > width:
            return text[:i]
    return text


def _cut(word: str, width: int) -> list[str]:
    pieces = []
    while word:
        piece = _head(word, width) or word[0]
        pieces.append(piece)
        word = word[len(piece) :]
    return pieces
