"""Find the relevant lines of a log, in a time that grows only linearly with the size of the log."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Protocol

try:
    import re2

    HAS_RE2 = True
except ImportError:  # no wheel for this Python: many times slower, and still linear (tests/explain/test_hostile.py)
    HAS_RE2 = False

MEMORY_BYTES = 48 << 20  # with less, its DFA for all signs does not fit, and re2 falls back to a slow engine


class Match(Protocol):
    """The methods that this package needs from a regular expression's match."""

    def start(self) -> int: ...
    def end(self) -> int: ...
    def span(self) -> tuple[int, int]: ...


class Pattern(Protocol):
    """The method that this package needs from a compiled pattern over bytes."""

    def search(self, text: bytes, pos: int = ...) -> Match | None: ...


def compile_any(patterns: Iterable[str]) -> Pattern:
    """Return one pattern over bytes that matches any of the ASCII patterns in `patterns`.

    `^` and `$` match the start and the end of a line.
    """
    return _compile("(?m)" + "|".join(f"(?:{pattern})" for pattern in patterns))


def compile_last(patterns: Iterable[str]) -> Pattern:
    """Return a pattern that finds the last match of any of `patterns` in a text.

    The match of the returned pattern starts at the start of the text, and ends where the last match ends.
    """
    return _compile("(?s)\\A.*(?:" + "|".join(f"(?:{pattern})" for pattern in patterns) + ")")


def _compile(source: str) -> Pattern:
    data = source.encode("ascii")
    if not HAS_RE2:
        return re.compile(data)
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1  # any byte is a character: logs hold every encoding
    options.max_mem = MEMORY_BYTES
    linear: Pattern = re2.compile(data, options)  # type: ignore[no-untyped-call]
    return linear
