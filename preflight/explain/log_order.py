"""Reverse a log whose newest line comes first. Cloud consoles export logs in this order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain

from preflight.explain.line_prefix import read_moment

LIMIT = 16 << 20  # bytes; consoles export some ten thousand lines
ENOUGH = 64 << 10  # bytes, to tell the order
LOOKED_AT = 400  # lines; their clock tells the order
HEAD = 200  # bytes: where an exporter writes its time stamp
LEAST = 4  # steps back in time
CLEARLY = 0.9  # of all steps


def oldest_first(chunks: Iterable[bytes]) -> tuple[Iterable[bytes], int]:
    """Return the log with the oldest line first, and the number of lines that were reversed.

    The number is 0 if the order of the log was not changed.
    """
    rest = iter(chunks)
    head: list[bytes] = []
    if not is_newest_first(take(rest, head, ENOUGH)):
        return chain(head, rest), 0
    if len(take(rest, head, LIMIT)) > LIMIT:
        return chain(head, rest), 0
    lines = b"".join(head).rstrip(b"\n").split(b"\n")
    lines.reverse()
    return [b"\n".join(lines) + b"\n"], len(lines)


def take(chunks: Iterator[bytes], taken: list[bytes], size: int) -> bytes:
    """Append chunks to `taken` until `taken` has more than `size` bytes or the log ends.

    Return all bytes in `taken`.
    """
    length = sum(map(len, taken))
    while length <= size and (chunk := next(chunks, None)) is not None:
        taken.append(chunk)
        length += len(chunk)
    return b"".join(taken)


def is_newest_first(text: bytes) -> bool:
    """Return whether the first lines of a log run from newer to older times."""
    back = forth = 0
    last: tuple[str, float] = ("", 0.0)
    for line in text.split(b"\n", LOOKED_AT)[:LOOKED_AT]:
        moment = read_moment(line[:HEAD].decode("ascii", "replace"))
        if not moment.clock:
            continue
        if moment.clock == last[0]:
            back += moment.seconds < last[1]
            forth += moment.seconds > last[1]
        last = (moment.clock, moment.seconds)
    return back >= LEAST and back >= CLEARLY * (back + forth)
