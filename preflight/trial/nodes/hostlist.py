"""Expand Slurm's short form for many hosts, `gpu[01-03,7],login2`, as `scontrol show hostnames` does."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

from preflight.errors import MalformedInput

MOST_HOSTS = 65536
LONGEST_TEXT = 1 << 20
RANGE = re.compile(r"(\d{1,18})(?:-(\d{1,18}))?", re.ASCII)
PIECE = re.compile(r"\[([^\[\]]*)\]|([^\[\],\s]+)")


def expand_hosts(text: str) -> tuple[str, ...]:
    """Return the hosts in `text`, in the written order. Raise MalformedInput if `text` is not a host list."""
    if len(text) > LONGEST_TEXT:
        raise _malformed(text, "longer than 1 MiB")
    found = (host for word in _words(text) for host in _expand(word, text))
    hosts = tuple(itertools.islice(found, MOST_HOSTS + 1))
    if not 0 < len(hosts) <= MOST_HOSTS:
        raise _malformed(text, f"more than {MOST_HOSTS} hosts" if hosts else "no host")
    return hosts


def _words(text: str) -> Iterator[str]:
    """Yield the words of a host list: the texts between commas that are outside brackets."""
    start, depth = 0, 0
    for place, char in enumerate(text):
        depth += (char == "[") - (char == "]")
        if depth not in (0, 1):
            raise _malformed(text, "brackets that don't match")
        if char == "," and depth == 0:
            yield text[start:place]
            start = place + 1
    if depth:
        raise _malformed(text, "brackets that don't match")
    yield text[start:]


def _expand(word: str, text: str) -> Iterator[str]:
    """Yield the hosts of one word of a host list.

    If the word has several brackets, the number in the last bracket changes fastest, as in Slurm.
    """
    parts: list[list[str]] = []
    end = 0
    for match in PIECE.finditer(word):
        if match.start() != end:
            break
        end = match.end()
        parts.append([match[2]] if match[1] is None else list(_numbers(match[1], text)))
    if end != len(word) or not parts:
        raise _malformed(text, f"{word[:40]!r} is no host")
    yield from map("".join, itertools.product(*parts))


def _numbers(ranges: str, text: str) -> Iterator[str]:
    """Yield the numbers in a text such as `01-03,7`, with their leading zeros."""
    for part in ranges.split(","):
        match = RANGE.fullmatch(part)
        if match is None:
            raise _malformed(text, f"{part[:40]!r} is no range")
        first, last = int(match[1]), int(match[2] or match[1])
        if not first <= last < first + MOST_HOSTS:
            raise _malformed(text, f"{part[:40]!r} is no range, or one of more than {MOST_HOSTS} hosts")
        yield from (str(number).zfill(len(match[1])) for number in range(first, last + 1))


def _malformed(text: str, why: str) -> MalformedInput:
    return MalformedInput(f"{text[:80]!r} is no list of hosts as Slurm writes them: {why}")
