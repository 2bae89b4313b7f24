"""The steps of NCCL's start-up, as its INFO log shows them, and the process that printed a line."""

from __future__ import annotations

import re
from enum import IntEnum

# `host:pid:tid [dev] NCCL INFO ...`; some launchers put the process's host there, some containers a bare number.
PROCESS = re.compile(r"([A-Za-z0-9][\w.-]{0,63}):(\d{1,8}):\d{1,8}[ :]")


class StartStep(IntEnum):
    """A step of NCCL's start-up, in NCCL's order."""

    BOOTSTRAP = 0
    NETWORK = 1
    BEGAN = 2
    TOPOLOGY = 3
    CHANNELS = 4
    CONNECTED = 5
    COMPLETE = 6
    COLLECTIVE = 7


# As text, since a search for all of them at once is compiled elsewhere.
STEP_WORDS: dict[StartStep, str] = {
    StartStep.BOOTSTRAP: r"Bootstrap ?: Using",
    StartStep.NETWORK: r"Using network |NET/(?:IB|Socket) ?: Using \[",
    StartStep.BEGAN: r"Init START",
    StartStep.TOPOLOGY: r"Setting affinity for GPU|NVLS multicast support",
    StartStep.CHANNELS: r"Channel \d{1,3}(?:/\d{1,3})? :|via (?:P2P|SHM|NET|direct|COLLNET)[/ ]",
    StartStep.CONNECTED: r"Connected all (?:rings|trees)",
    StartStep.COMPLETE: r"Init COMPLETE",
    StartStep.COLLECTIVE: r"NCCL INFO [A-Z][A-Za-z]{3,16}: opCount \d",
}
_STEPS = tuple((step, re.compile(words)) for step, words in STEP_WORDS.items())


def steps(line: str) -> tuple[StartStep, ...]:
    """Return the steps of NCCL's start-up in a line; launchers join lines, so there may be several."""
    return tuple(step for step, pattern in _STEPS if pattern.search(line))


def process(line: str) -> str:
    """Return the process that printed `line`, as `host:pid`; "" if the line lacks NCCL's prefix."""
    match = PROCESS.search(line)
    return f"{match[1]}:{match[2]}" if match else ""
