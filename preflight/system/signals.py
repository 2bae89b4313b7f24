"""Ctrl-C, SIGTERM and SIGHUP end a run in order: the first raises Interrupted, later ones change nothing."""

from __future__ import annotations

import signal
from types import FrameType

from preflight.errors import Interrupted

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def raise_on_signals() -> None:
    """Have the main thread raise Interrupted at the first signal; SIGHUP stays ignored under nohup."""
    for number in STOPPING:
        if signal.getsignal(number) is not signal.SIG_IGN or number is not signal.SIGHUP:
            signal.signal(number, _raise)


def _raise(number: int, _frame: FrameType | None) -> None:
    for each in STOPPING:
        signal.signal(each, signal.SIG_IGN)
    raise Interrupted(number, signal.Signals(number).name)
