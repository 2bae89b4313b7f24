"""Kernel log lines about Xids and lost links from the time before a run.

The table [lookback] of a policy uses these lines.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from preflight.model.gap import Gap
from preflight.model.xids import XID_LINE

# As drivers write it: mlx5 `eth0: Link down`, most others `eth0: NIC Link is Down` or `e1000e: eth0 NIC Link is Down`.
LINK = re.compile(r"(?:^| )([\w.@-]{1,32})(?:: (?:NIC )?| NIC )Link (?:is )?(up|down)\b", re.ASCII | re.IGNORECASE)
FIRST_S = 300.0  # after a boot links come up, go down while they are configured, and come up again


@dataclass(frozen=True, slots=True)
class TimedLine:
    """A line of the kernel log."""

    at_s: float  # since boot, on the log's clock
    text: str


@dataclass(frozen=True, slots=True)
class KernelHistory:
    """The lines of the kernel log about Xids and links, and the time span that the log covers."""

    now_s: float  # since the boot
    begins_s: float  # the time of the oldest line, since boot; 0 if no line since boot was overwritten
    lines: tuple[TimedLine, ...]
    losses: tuple[tuple[str, int | Gap], ...] = ()  # by interface that is up: how often its link has gone down

    def within(self, window_s: float) -> tuple[TimedLine, ...]:
        """Return the lines from the last `window_s` seconds, oldest first."""
        return tuple(line for line in self.lines if line.at_s >= self.now_s - window_s)

    def is_whole(self, window_s: float) -> bool:
        """Return whether the log covers the last `window_s` seconds, or all the time since boot."""
        return self.begins_s <= max(0.0, self.now_s - window_s)


def xids_in(lines: Sequence[TimedLine]) -> Iterator[tuple[str, int, TimedLine]]:
    """Yield (bus address of the GPU, Xid, line) for each log line that reports an Xid."""
    for line in lines:
        if match := XID_LINE.search(line.text):
            yield match[1].lower(), int(match[2]), line


def flaps_in(lines: Sequence[TimedLine]) -> dict[str, list[TimedLine]]:
    """Return {interface: "link down" lines} for links that came up again.

    Links that went down in the first FIRST_S seconds after boot are left out.
    """
    down: dict[str, TimedLine] = {}
    found: dict[str, list[TimedLine]] = {}
    for line in lines:
        match = LINK.search(line.text)
        if match is None:
            continue
        name, is_up = match[1], match[2].lower() == "up"
        if not is_up:
            down[name] = line
        elif (went := down.pop(name, None)) is not None and went.at_s > FIRST_S:
            found.setdefault(name, []).append(went)
    return found


def interfaces_in(lines: Sequence[TimedLine]) -> frozenset[str]:
    """Return the interfaces that have a link message in `lines`, lines of the kernel log."""
    return frozenset(match[1] for line in lines if (match := LINK.search(line.text)))
