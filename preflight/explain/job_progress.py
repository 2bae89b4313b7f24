"""The progress of a job: its phase when the ranks began to wait, and the step of NCCL's start in each process."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field

from preflight.explain.line_prefix import clean, line_around
from preflight.explain.linear_patterns import compile_last
from preflight.explain.nccl_start import StartStep, process, steps
from preflight.model.job_phases import WORDS, Phase
from preflight.model.transport import PRINTED_PATH

LAST = compile_last(WORDS.values())
KINDS = tuple((phase, re.compile(words)) for phase, words in WORDS.items())
FULL_BAR = re.compile(r"100%\|[^|]{0,400}\| *(\d[\d.]{0,11}[kKMGT]?)/\1 \[")
BAR = re.compile(r"\[((?:\d{1,3}:)?\d{1,2}:\d\d)<")
LINE_LIMIT = 600
LOOK_THROUGH = 20  # bars at 100% in a row; more would make this quadratic
LOOK_BACK_BYTES = 8 << 20
# What a process did last, and what it waits for next.
NCCL_STEPS: dict[StartStep, tuple[str, str]] = {
    StartStep.BOOTSTRAP: ("chose its bootstrap interface", "every rank reaching rank 0 over that interface"),
    StartStep.NETWORK: ("chose its network", "every rank joining the communicator"),
    StartStep.BEGAN: ("began the communicator", "the topology exchange over the bootstrap network"),
    StartStep.TOPOLOGY: ("read the topology", "connecting to its peers"),
    StartStep.CHANNELS: ("connected channels", "the connections to its peers (P2P, shared memory or network)"),
    StartStep.CONNECTED: ("connected rings or trees", "the other ranks' connections"),
    StartStep.COMPLETE: ("completed its communicator", "the first collective"),
    StartStep.COLLECTIVE: ("started a collective", "data from its peers"),
}
MOST_PROCESSES = 8192


@dataclass(frozen=True, slots=True)
class PhaseRecord:
    """A log line that shows a phase of the job, such as training or writing a checkpoint."""

    phase: Phase
    text: str
    line: int


def bar_elapsed_s(text: str) -> float | None:
    """Return the elapsed time in seconds in the last progress bar of `text`, or None if `text` has no bar."""
    matches = BAR.findall(text)
    if not matches:
        return None
    seconds = 0.0
    for part in matches[-1].split(":"):
        seconds = seconds * 60 + int(part)
    return seconds


def is_full_bar(text: str) -> bool:
    """Return whether `text`, a line of a log, shows a completed progress bar."""
    return FULL_BAR.search(text) is not None


def last_phase(blocks: list[tuple[int, bytes]]) -> PhaseRecord | None:
    """Return the last log line that names a phase of the job, or None if no line names a phase.

    `blocks` are parts of the log in order, each with the number of its first line.
    """
    # A completed progress bar of the training is skipped, because the bar is often printed again after a later phase.
    # If the phase before the bar is training, the result is the bar, because training had just finished.
    finished: PhaseRecord | None = None
    for first_line, block in reversed(blocks):
        end = len(block)
        for _ in range(LOOK_THROUGH):
            match = LAST.search(block[:end])
            if match is None:
                break
            start, line_end = line_around(block, match.end(), match.end(), LINE_LIMIT, LINE_LIMIT)
            text = clean(block[start:line_end])
            line = first_line + block.count(b"\n", 0, start)
            kind = _kind(text)
            if kind is Phase.FINISHED:
                finished = finished or PhaseRecord(kind, text, line)
            elif kind is not None:
                return finished if finished is not None and kind is Phase.TRAINING else PhaseRecord(kind, text, line)
            end = start
    return finished


def _kind(text: str) -> Phase | None:
    kind = next((phase for phase, pattern in KINDS if pattern.search(text)), None)
    return Phase.FINISHED if kind is Phase.TRAINING and is_full_bar(text) else kind


@dataclass(slots=True)
class NcclStarts:
    """The furthest step of NCCL's start that each process has reached.

    `steps` contains the step of each process. The key is "host:pid".
    """

    steps: dict[str, StartStep] = field(default_factory=dict)
    last_line: dict[str, tuple[int, str, int]] = field(default_factory=dict)  # source, text, line
    collectives: Counter[str] = field(default_factory=Counter)
    paths: set[str] = field(default_factory=set)  # P2P, SHM, NET: what channels were connected by

    def read(self, text: str, source: int, line: int) -> None:
        """Record the step of NCCL's start in `text`, a line of NCCL's INFO output, if the line shows a step."""
        key = process(text)
        if key not in self.steps and len(self.steps) >= MOST_PROCESSES:
            return
        if path := PRINTED_PATH.search(text):
            self.paths.add(path[3].split("/")[0])
        for step in steps(text):
            self.steps[key] = max(step, self.steps.get(key, step))
            self.last_line[key] = (source, text, line)
            self.collectives[key] += step is StartStep.COLLECTIVE

    def unfinished(self) -> tuple[str, ...]:
        """Return the processes ("host:pid") that began to create a communicator but never completed one."""
        return tuple(key for key, step in self.steps.items() if step < StartStep.COMPLETE)
