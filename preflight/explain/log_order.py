"""Reverse a log that has the newest line first, as cloud consoles export it."""

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
    """Return the log in the order of time, and the number of its lines if it was reversed, or else 0."""
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
    """Add chunks to `taken` until it has more than `size` bytes or the log ends; return all bytes in `taken`."""
    length = sum(map(len, taken))
    while length <= size and (chunk := next(chunks, None)) is not None:
        taken.append(chunk)
        length += len(chunk)
    return b"".join(taken)


def is_newest_first(text: bytes) -> bool:
    """Return whether the times of a log's first lines decrease."""
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
