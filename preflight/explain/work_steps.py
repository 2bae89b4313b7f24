"""Recognize work steps, which are the lines that training loops and servers print during normal operation."""

from __future__ import annotations

import re
from collections.abc import Iterable

from preflight.explain.linear_patterns import compile_any

# What a line of a training loop measures beside the number of its step; "step 3 of the installation" is no work.
MEASURED = (
    r"[^\n]{0,120}(?:[Ll]oss|\blr[ =:]|consumed (?:samples|tokens)|learning.rate|tok|flops|"
    r"/s\b|/sec\b|s/it|seconds|sec/step|mfu|reward|grad|score|acc=|time[:=])"
)
# Bars are drawn again and again: what is matched differs from one step to the next.
STEP = compile_any((
    r"\b\d{1,9}/\d{1,9} \[[=>.]{9,60}\]",
    r"\{'loss': [^\n]{1,60}",
    rf"\b[Ii]ter(?:ation)?[ :=\[]{{1,3}} {{0,9}}\d{{1,9}}\b{MEASURED}",
    rf"(?:^|[:|\]\t]) {{0,3}}[Ii]ters: {{0,9}}\d{{1,9}}\b{MEASURED}",
    r"\b\d{1,9}/ ?\d{1,9} ?\[\d",
    rf"\b[Ss]teps?[ :=/]{{1,2}} {{0,9}}\d{{1,9}}\b{MEASURED}",
    rf"\b[Ee]poch[^\n]{{0,12}}\d{{1,6}}{MEASURED}",
    rf"\bep \d{{1,6}} train{MEASURED}",
    r"\[ {0,6}\d{1,6}, {0,6}\d{1,6}\] [^\n]{0,20}loss: \d[^\n]{1,40}",
    rf"\bbatch(?:es)?[ :=]{{1,4}}\d{{1,9}}\b{MEASURED}",
    # The same load at another time is work; an engine that does none tells of it as often.
    r"\b\d\d:\d\d:\d\d\b[^\n]{1,120}(?:#running-req|generation throughput): [1-9]",
    r"#running-req: [^\n]{1,60}",
    r"generation throughput: [^\n]{1,60}",
    r"[^\n]{1,40}\"POST /[^\n]{1,80}\" 200",
    r"\b(?:float|half|bfloat16) +(?:sum|none) +-?\d{1,3} +[\d.]{1,9}",
))  # fmt: skip
QUEUED = b"Adding requests"  # the bar of vLLM's client goes on without the engine
PREPARES = re.compile(rb"\b(?:Map|Filter|Tokeniz\w{1,5}|Grouping|Generating \w{1,30} split)\b")
FAR = 12  # more steps than any decision needs: `read` stops counting after these
READ_BYTES = 8 << 20  # after something alarming; a log without one step in it says no more
LONGEST = 160


def shows_work(lines: Iterable[str]) -> bool:
    """Return whether any of `lines` reports a work step, such as an iteration of a training loop."""
    return any(STEP.search(line.encode("ascii", "replace")) for line in lines)


class StepCounter:
    """A counter of the distinct work steps in one log.

    `count` is the number of work steps so far. After an alarming line, the counter reads only a limited amount of text.
    """

    # The limit saves time.

    def __init__(self) -> None:
        self.count = 0
        self.prepared = 0  # steps of data preparation since `begin`
        self.alarms = 0  # lines that tell of something alarming, also those that are not kept
        self._until = 0
        self._left_bytes = 0
        self._recent: set[bytes] = set()

    def begin(self) -> None:
        """Let `read` count the work steps from now on. Call this method when an alarming line was kept."""
        self.prepared = 0
        self._until = self.count + FAR
        self._left_bytes = READ_BYTES

    @property
    def is_counting(self) -> bool:
        """Return whether `read` still counts.

        `read` stops after a limited number of steps or bytes since the last call of `begin`.
        """
        return self.count < self._until and self._left_bytes > 0

    def read(self, text: bytes) -> None:
        """Count the work steps in `text`, a part of the log that no search pattern matched.

        Do nothing if `is_counting` is false.
        """
        self._left_bytes -= len(text)
        position = 0
        while self.is_counting and (match := STEP.search(text, position)) is not None:
            start, end = match.span()
            step = text[start : min(end, start + LONGEST)]
            begins = _line_start(text, start)
            if step not in self._recent and QUEUED not in text[begins:start]:
                if len(self._recent) >= FAR * 4:
                    self._recent.clear()
                self._recent.add(step)
                is_work = PREPARES.search(text, begins, start) is None
                self.count, self.prepared = self.count + is_work, self.prepared + (not is_work)
            position = max(_line_end(text, end), start + 1)


def _line_start(text: bytes, at: int) -> int:
    """Return the position at which the line that contains the position `at` begins.

    A line also begins after a carriage return. The search covers at most LONGEST bytes.
    """
    least = max(0, at - LONGEST)
    return max(text.rfind(b"\n", least, at), text.rfind(b"\r", least, at), least - 1) + 1


def _line_end(text: bytes, at: int) -> int:
    """Return the position at which the line that contains the position `at` ends.

    A line also ends at a carriage return. The search covers at most twice LONGEST bytes.
    """
    newline = text.find(b"\n", at, at + LONGEST * 2)
    end = newline if newline >= 0 else min(at + LONGEST * 2, len(text))
    back = text.find(b"\r", at, end)
    return back if back >= 0 else end
