"""How far each process got in NCCL's start-up, for logs that simply stop."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field

PROCESS = re.compile(r"([A-Za-z0-9][\w.-]{0,63}):(\d{1,8}):\d{1,8}[ :]")
# In NCCL's order; each with what it waits for next.
STEPS: tuple[tuple[str, re.Pattern[str], str], ...] = (
    (
        "chose its bootstrap interface",
        re.compile(r"Bootstrap ?: Using"),
        "every rank reaching rank 0 over that interface",
    ),
    (
        "chose its network",
        re.compile(r"Using network |NET/(?:IB|Socket) ?: Using"),
        "every rank joining the communicator",
    ),
    ("began the communicator", re.compile(r"Init START"), "the topology exchange over the bootstrap network"),
    ("read the topology", re.compile(r"Setting affinity for GPU|NVLS multicast support"), "connecting to its peers"),
    (
        "connected channels",
        re.compile(r"Channel \d{1,3}(?:/\d{1,3})? :|via (?:P2P|SHM|NET|direct)"),
        "the connections to its peers (P2P, shared memory or network)",
    ),
    ("connected rings or trees", re.compile(r"Connected all (?:rings|trees)"), "the other ranks' connections"),
    ("completed its communicator", re.compile(r"Init COMPLETE"), "the first collective"),
    ("started a collective", re.compile(r"NCCL INFO [A-Z][A-Za-z]{3,16}: opCount"), "data from its peers"),
)
COMPLETE = 6
COLLECTIVE = 7
LIMIT = 8192


@dataclass(slots=True)
class Starts:
    """The furthest step of every process, by host and pid."""

    steps: dict[str, int] = field(default_factory=dict)
    last_line: dict[str, tuple[int, str, int]] = field(default_factory=dict)  # source, text, line
    collectives: Counter[str] = field(default_factory=Counter)

    def read(self, text: str, source: int, line: int) -> None:
        """Take a line of NCCL's INFO output."""
        match = PROCESS.search(text)
        key = f"{match[1]}:{match[2]}" if match else ""
        if key not in self.steps and len(self.steps) >= LIMIT:
            return
        for number, (_, pattern, _) in enumerate(STEPS):
            if pattern.search(text):
                self.steps[key] = max(number, self.steps.get(key, -1))
                self.last_line[key] = (source, text, line)
                self.collectives[key] += number == COLLECTIVE

    def unfinished(self) -> tuple[str, ...]:
        """Return the processes that began and never completed a communicator."""
        return tuple(key for key, step in self.steps.items() if step < COMPLETE)
