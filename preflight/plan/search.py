"""What to try next, from what is known so far. Pure: the conductor asks, and does it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from preflight.model.run import Duel, Measure
from preflight.model.trial import AS_IS, DEFAULT, Candidate, TrialResult
from preflight.plan.duel import DUEL_PAIRS, finalist, heats, is_sound, screening_gains


@dataclass(frozen=True, slots=True)
class Try:
    """Give this candidate its trial."""

    candidate: str


@dataclass(frozen=True, slots=True)
class Compare:
    """Measure this candidate against the default in so many fresh pairs of process groups."""

    candidate: str
    pairs: int


@dataclass(frozen=True, slots=True)
class Stop:
    """Nothing more is worth trying."""


Next = Try | Compare | Stop


@dataclass(frozen=True, slots=True)
class Known:
    """What the run has learnt so far."""

    results: tuple[TrialResult, ...] = ()
    heated: tuple[Duel, ...] = ()  # one pair each
    compared: tuple[Duel, ...] = ()
    unkillable: bool = False  # a process is stuck in the kernel and keeps its GPU
    broken_pairs: tuple[tuple[int, int], ...] = ()  # local ranks between whose GPUs peer copies hang or arrive wrong


def next_step(candidates: Sequence[Candidate], screen_all: bool, decisions: Sequence[Measure], known: Known) -> Next:
    """Return the next step: the default, the inherited settings, the others where that is worth it, then comparisons.

    `screen_all` tries every candidate and compares; else the others are tried only when the default fails. The best
    of those that passed is measured afresh: the best of several equal ones looks better by chance. After a process that
    SIGKILL does not end nothing more is tried: every candidate would run on its GPU.
    """
    if known.unkillable:
        return Stop()
    tried = {result.candidate: result for result in known.results}
    default_works = DEFAULT in tried and is_sound(tried[DEFAULT])
    for candidate in candidates:
        always = candidate.name in (DEFAULT, AS_IS)
        if candidate.name not in tried and (always or screen_all or not default_works):
            return Try(candidate.name)
    if not default_works or not screen_all:
        return Stop()
    compared = {duel.candidate for duel in known.compared}
    if AS_IS in tried and is_sound(tried[AS_IS]) and AS_IS not in compared:
        return Compare(AS_IS, DUEL_PAIRS)
    screened = screening_gains(decisions, known.results)
    heated = {duel.candidate for duel in known.heated}
    for name in heats(screened):
        if name not in heated:
            return Compare(name, 1)
    best = finalist(screened, known.heated)
    return Compare(best, DUEL_PAIRS) if best and best not in compared else Stop()
