"""Find the last line of the user's own code in a traceback, and the collective in which this line waits."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from preflight.explain.line_prefix import clean

FRAME = re.compile(r'File "([^"\n]{1,300})", line (\d{1,7}), in ([\w.<>]{1,80})')
BEGIN = re.compile(r"Traceback \(most recent call last\)")
# Python's own, torch and what is installed: not the user's code.
LIBRARY = re.compile(
    r"/(?:site|dist)-packages/|/lib(?:64)?/python\d|/torch/(?:distributed|nn|utils|autograd|_|cuda|optim|library)|"
    r"^<|/bin/(?:torchrun|accelerate|deepspeed|llamafactory-cli)$"
)
COLLECTIVE = re.compile(
    r"\b(all_reduce|all_gather\w{0,20}|all_to_all\w{0,20}|broadcast\w{0,20}|reduce_scatter\w{0,20}|monitored_barrier|"
    r"barrier|gather\w{0,12}|scatter\w{0,12}|reduce|backward|init_process_group|wait_for_everyone)\b"
)
CALL = re.compile(rf"(?:\.|\b){COLLECTIVE.pattern}\(")
OF_TORCH = re.compile(r"/torch/(?:distributed|autograd)|torch/_tensor\.py|/accelerate/")
# The prefix that a launcher puts before every line of one process.
PROCESS = re.compile(
    r"\s{0,9}(\[[Rr]ank ?\d{1,6}\]|\[default\d{1,6}\]|\([^)\n]{3,80}\)|\[1,\d{1,6}\]<std\w{3}>|\d{1,6}:(?= ))"
)
# What vLLM's logger puts before each line of a traceback.
LOGGED = re.compile(r"(?:ERROR|WARNING|INFO) \d\d-\d\d \d\d:\d\d:\d\d \[?[\w./]{1,60}:\d{1,5}\] ?")
SOURCE_TEXT = 80


TOP_LEVEL = "<module>"  # outside of every function


@dataclass(frozen=True, slots=True)
class LastFrame:
    """The innermost frame of the user's own code in a traceback.

    If the traceback has no frame of the user's code, this is the innermost frame of the traceback.
    """

    file: str
    line: int
    function: str
    source: str = ""  # the line of code
    call: str = ""  # the collective that the rank was in
    is_own: bool = True

    @property
    def place(self) -> str:
        """Return the file and line as `train.py:44`."""
        return f"{self.file.rsplit('/', 1)[-1]}:{self.line}"

    @property
    def place_and_function(self) -> str:
        """Return the file, the line and the function as `train.py:44 (training_step)`.

        Outside a function, return only the file and the line.
        """
        return self.place if self.function == TOP_LEVEL else f"{self.place} ({self.function})"


def process_of(text: str) -> str:
    """Return the prefix of `text` that names the process that wrote the line, or "" if the line has no such prefix."""
    match = PROCESS.match(text)
    return match[1] if match else ""


def read_last_frame(before: bytes, text: str) -> LastFrame | None:
    """Return the last frame of the traceback that ends with the line `text`, or None if there is no traceback.

    Frames of the user's own code are preferred.
    """
    # `before` is the part of the log before the line.
    if b'File "' not in before:  # most lines of failures have no traceback before them
        return None
    process = process_of(text)
    lines = [clean(line) for line in before.splitlines()]
    if process:
        lines = [line for line in lines if process_of(line) == process]
    begins = max((number for number, line in enumerate(lines) if BEGIN.search(line)), default=-1)
    lines = lines[begins + 1 :]
    frames = [(number, match) for number, line in enumerate(lines) if (match := FRAME.search(line))]
    if not frames:
        return None
    own = [(number, match) for number, match in frames if not LIBRARY.search(match[1])]
    number, frame = (own or frames)[-1]
    after = [match for other, match in frames if other >= number]
    source = _source_below(lines, number)
    return LastFrame(frame[1], int(frame[2]), frame[3], source, _call(source, after), is_own=bool(own))


def _source_below(lines: list[str], number: int) -> str:
    below = lines[number + 1] if number + 1 < len(lines) else ""
    if FRAME.search(below):
        return ""
    return LOGGED.sub("", below.removeprefix(process_of(below)).lstrip(": "), count=1).strip()[:SOURCE_TEXT]


def _call(source: str, frames: Iterable[re.Match[str]]) -> str:
    """Return the collective that the user's line calls.

    If the line names no collective, return the first collective that torch's frames below this line name.
    """
    if match := CALL.search(source):
        return match[1]
    named = (COLLECTIVE.fullmatch(frame[3]) for frame in frames if OF_TORCH.search(frame[1]))
    return next((match[1] for match in named if match), "")
