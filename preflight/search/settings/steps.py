"""What a search asks the conductor to do, and what it knows when it asks."""

from __future__ import annotations

import math
from dataclasses import dataclass

from preflight.model.run_spec import Duel, Measure
from preflight.model.trial import Candidate, Rerun, TrialResult


@dataclass(frozen=True, slots=True)
class Try:
    """Give this candidate its trial; it may have been made on the way."""

    candidate: Candidate
    is_for_cure: bool = False  # one of many that only have to work: a few sizes tell
    to_failure: bool = False  # and it ends where trials have failed


@dataclass(frozen=True, slots=True)
class Repeat:
    """Try these settings again up to where trials have failed: do they end alike?"""

    candidate: Candidate
    control: str = ""  # the candidate that alternates with the default; "" where one failure is repeated
    runs_each: int = 0

    def ended(self, result: TrialResult, duration_s: float | None = None) -> Rerun:
        """Return what became of it."""
        candidate, took_s = self.candidate, result.duration_s if duration_s is None else duration_s
        return Rerun(
            candidate.name, candidate.env, result.outcome, result.problem, took_s, self.control, self.runs_each,
            result.failed_in, result.culprits,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Compare:
    """Measure this candidate against the default in `n` fresh pairs of process groups."""

    candidate: str
    pairs: int


@dataclass(frozen=True, slots=True)
class Again:
    """Repeat the default's trial, which looks slow as `why` says; the repetition teaches the search nothing."""

    turn: int
    why: str


@dataclass(frozen=True, slots=True)
class Stop:
    """Nothing more is worth trying; `chosen` is to cure a default that fails."""

    chosen: Candidate | None = None


Next = Try | Repeat | Compare | Again | Stop


@dataclass(frozen=True, slots=True)
class Known:
    """What the run has found so far."""

    results: tuple[TrialResult, ...] = ()
    heated: tuple[Duel, ...] = ()  # one pair each
    compared: tuple[Duel, ...] = ()
    unkillable: bool = False  # a process is stuck in the kernel and keeps its GPU
    broken_pairs: tuple[tuple[int, int], ...] = ()  # local ranks between whose GPUs peer copies hang or arrive wrong
    repeats: tuple[TrialResult, ...] = ()  # of a default that looked slow
    suspects: tuple[str, ...] = ()  # families of settings that other evidence made suspect
    reruns: tuple[Rerun, ...] = ()
    failed_at: tuple[Measure, ...] = ()  # what was measured when trials failed; empty for failures before that
    left_s: float = math.inf  # until the deadline
    seed: int = 0  # of the order of a control's turns
