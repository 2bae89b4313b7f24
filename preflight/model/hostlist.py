"""Host names in the short form that Slurm and others write: `gpu[001-003,007],login1`."""

from __future__ import annotations

import re
from collections.abc import Iterable

LAST_NUMBER = re.compile(r"(.*?)([0-9]+)([^0-9]*)", re.ASCII | re.DOTALL)
PLAIN = re.compile(r"[A-Za-z0-9._-]+", re.ASCII)


def compress(hosts: Iterable[str]) -> str:
    """Return the hosts as one list, sorted; a name without a number, or with odd characters, stands by itself."""
    runs: dict[tuple[str, str, int], list[int]] = {}
    alone: list[str] = []
    for host in sorted(set(hosts)):
        match = LAST_NUMBER.fullmatch(host) if PLAIN.fullmatch(host) else None
        if match is None or len(match[2]) > 18:
            alone.append(host)
        else:
            runs.setdefault((match[1], match[3], len(match[2])), []).append(int(match[2]))
    parts = [_run(before, after, width, sorted(numbers)) for (before, after, width), numbers in sorted(runs.items())]
    return ",".join([*parts, *alone])


def _run(before: str, after: str, width: int, numbers: list[int]) -> str:
    if len(numbers) == 1:
        return f"{before}{numbers[0]:0{width}d}{after}"
    spans: list[list[int]] = []
    for number in numbers:
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    shown = [f"{a:0{width}d}" if a == b else f"{a:0{width}d}-{b:0{width}d}" for a, b in spans]
    return f"{before}[{','.join(shown)}]{after}"
