"""What earlier runs on a machine accused, a line of JSON each: a hang that comes once in a run is told by its runs.

GPUs go by their UUID, pairs by both, RDMA ports by their GUID: an index may be another GPU's after a boot.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from preflight.errors import MalformedInput
from preflight.model.codec import decode, encode
from preflight.model.gap import Gap
from preflight.model.input_limits import HISTORY, check_text, parse_json

MOST_RUNS = 500  # that a file keeps; only the last few of a part are ever looked at
MOST_ACCUSED = 64
MOST_CHARACTERS = 300  # of a problem
PAIR = "+"  # between the UUIDs of two GPUs that nobody can tell apart


@dataclass(frozen=True, slots=True)
class Accused:
    """A part that a run accused, and of what."""

    part: str
    check: str
    problem: str


@dataclass(frozen=True, slots=True)
class PastRun:
    """One run: when, in which boot of which host, which parts it tried, and which of them it accused."""

    at: str  # ISO 8601, UTC
    host: str
    boot_id: str | Gap
    simulated: bool
    tried: tuple[str, ...]
    accused: tuple[Accused, ...]

    def has_tried(self, part: str) -> bool:
        """Tell whether the run would have seen a fault of this part."""
        return set(part.split(PAIR)) <= set(self.tried)


def parse_history(text: str, name: str) -> tuple[PastRun, ...]:
    """Return the runs of a history, the oldest first; MalformedInput names the first line that is none."""
    check_text(text, HISTORY, name)
    runs = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            where = f"{name}, line {number}"
            try:
                runs.append(decode(PastRun, parse_json(line, HISTORY, where)))
            except MalformedInput as error:
                said = str(error)
                raise MalformedInput(said if said.startswith(where) else f"{where}: {said}") from None
    return tuple(runs)


def history_text(runs: Sequence[PastRun]) -> str:
    """Return the file of so many runs; the oldest are left out where they are too many."""
    return "".join(json.dumps(encode(run), separators=(",", ":")) + "\n" for run in runs[-MOST_RUNS:])
