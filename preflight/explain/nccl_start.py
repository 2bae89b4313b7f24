"""Recognize the steps of NCCL's startup in its INFO log, and the process that printed a log line."""

from __future__ import annotations

import re
from enum import IntEnum

# `host:pid:tid [dev] NCCL INFO ...`; some launchers put the process's host there, some containers a bare number.
PROCESS = re.compile(r"([A-Za-z0-9][\w.-]{0,63}):(\d{1,8}):\d{1,8}[ :]")


class StartStep(IntEnum):
    """The steps of NCCL's startup, in the order in which NCCL takes the steps."""

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
    """Return the steps of NCCL's startup that `line` reports.

    A line may report several steps, because launchers join lines.
    """
    return tuple(step for step, pattern in _STEPS if pattern.search(line))


def process(line: str) -> str:
    """Return the process that printed the log line, as `host:pid`, or "" if the line has no NCCL prefix."""
    match = PROCESS.search(line)
    return f"{match[1]}:{match[2]}" if match else ""
