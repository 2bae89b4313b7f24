"""Join the lines that a terminal window broke before a user pasted the text.

A terminal window breaks lines even in the middle of a word.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import chain

LIMIT = 1 << 20  # bytes; what is pasted from a window is shorter
WIDTHS = range(40, 400)
LEAST = 2  # full lines; one line that is the longest proves nothing
# How a line begins that is no continuation: a prefix, a time, an indented frame.
BEGINS = re.compile(
    r"\s\s|[\[(>{#*=+|-]|\d{1,5}: |\d{4}-\d\d|[EWIF]\d{3,4} |[\w.-]{1,64}:\d{1,8}:\d{1,8} |"
    r"frame #|Traceback|terminate called|[A-Za-z_][\w.]{0,80}(?:Error|Exception|Interrupt)(?:: |$)"
)


def unwrapped(chunks: Iterable[bytes]) -> tuple[Iterable[bytes], tuple[int, ...]]:
    """Return the log with its broken lines joined, and the original number of each line.

    The numbers are () if nothing changed.
    """
    # Only a short log is examined. A log counts as broken if many lines have the same full width and continue in a line
    # without a prefix.
    head: list[bytes] = []
    rest = iter(chunks)
    size = 0
    for chunk in rest:
        head.append(chunk)
        size += len(chunk)
        if size > LIMIT:
            return chain(head, rest), ()
    lines = b"".join(head).split(b"\n")
    ends = _broken(lines)
    if not ends:
        return head, ()
    joined: list[bytes] = []
    places: list[int] = []
    for number, line in enumerate(lines):
        if number and number - 1 in ends:
            joined[-1] = joined[-1].rstrip(b"\r") + line
        else:
            joined.append(line)
            places.append(number + 1)
    return [b"\n".join(joined)], tuple(places)


def _broken(lines: list[bytes]) -> frozenset[int]:
    """Return the indices of the lines that continue in the next line."""
    width = max((len(line) for line in lines), default=0)
    if width >= WIDTHS.stop * 4:  # no window is that wide, even if every character took four bytes
        return frozenset()
    texts = [line.rstrip(b"\r").decode("utf-8", "replace") for line in lines]
    width = max(map(len, texts))
    full = [i for i, text in enumerate(texts[:-1]) if text and len(text) == width and not text.endswith("  ")]
    ends = frozenset(i for i in full if _goes_on(texts[i], texts[i + 1]))
    return ends if width in WIDTHS and len(full) >= LEAST and len(ends) * 2 >= len(full) else frozenset()


def _goes_on(text: str, after: str) -> bool:
    # Ranks print the same message, of the same length, one after the other.
    return bool(after) and after[:3] != text[:3] and BEGINS.match(after) is None
