"""What to try next, from what is known so far. Pure: the conductor asks, and does it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from preflight.model.baseline import NO_BASELINE, Baseline, wants_repetition
from preflight.model.run import Duel, Measure
from preflight.model.trial import AS_IS, DEFAULT, Candidate, Outcome, Setting, TrialResult
from preflight.plan.cure import find_cure, minimise_inherited
from preflight.plan.duel import DUEL_PAIRS, finalist, heats, is_sound, screening_gains
from preflight.plan.suspects import by_suspicion, suspected_families


@dataclass(frozen=True, slots=True)
class Try:
    """Give this candidate its trial; it may have been made on the way."""

    candidate: Candidate
    is_for_cure: bool = False  # one of many that only have to work: a few sizes tell


@dataclass(frozen=True, slots=True)
class Compare:
    """Measure this candidate against the default in so many fresh pairs of process groups."""

    candidate: str
    pairs: int


@dataclass(frozen=True, slots=True)
class Again:
    """Repeat the default's trial: it looks slow beside the baseline; the repetition teaches the search nothing."""

    turn: int


@dataclass(frozen=True, slots=True)
class Stop:
    """Nothing more is worth trying."""


Next = Try | Compare | Again | Stop


@dataclass(frozen=True, slots=True)
class Known:
    """What the run has learnt so far."""

    results: tuple[TrialResult, ...] = ()
    heated: tuple[Duel, ...] = ()  # one pair each
    compared: tuple[Duel, ...] = ()
    unkillable: bool = False  # a process is stuck in the kernel and keeps its GPU
    broken_pairs: tuple[tuple[int, int], ...] = ()  # local ranks between whose GPUs peer copies hang or arrive wrong
    repeats: tuple[TrialResult, ...] = ()  # of the default, for a baseline
    suspects: tuple[str, ...] = ()  # families of settings, or causes, that other evidence made suspect


def next_step(
    candidates: Sequence[Candidate],
    screen_all: bool,
    decisions: Sequence[Measure],
    known: Known,
    settings: Sequence[Setting] = (),
    inherited: Sequence[Setting] = (),
    last: Candidate | None = None,
    baseline: Baseline = NO_BASELINE,
) -> Next:
    """Return the next step: the default, the inherited settings, then what the default's outcome makes worth trying.

    The default fails: where the inherited settings work, which of them are needed (`inherited` has them one by one);
    else the cure among the conservative `settings` (plan/cure.py), and without these every candidate. It works: with
    `screen_all` every candidate, and comparisons. The best of those that passed is measured afresh: the best of several
    equal ones looks better by chance. After a process that SIGKILL does not end nothing more is tried: every candidate
    would run on its GPU. `last` ends a thorough search of a default that works: it only shows more of it. A default
    that works and looks slow beside the `baseline` is repeated before anything else is measured.
    """
    if known.unkillable:
        return Stop()
    tried = {result.candidate: result for result in known.results}
    for candidate in candidates:
        if candidate.name in (DEFAULT, AS_IS) and candidate.name not in tried:
            return Try(candidate)
    default, as_is = tried.get(DEFAULT), tried.get(AS_IS)
    default_works = default is not None and is_sound(default)
    if default is not None and not default_works:
        if as_is is not None and is_sound(as_is):
            return _for_cure(minimise_inherited(inherited, known.results).next)
        if settings:
            return _cure(settings, default, known)
    if default_works and wants_repetition(baseline, (*known.results, *known.repeats)):
        return Again(len(known.repeats) + 1)
    wanted = candidates if screen_all or not default_works else ()
    untried = next((each for each in wanted if each.name not in tried), None)
    compares = untried is None and default_works and screen_all
    return _next_comparison(decisions, known, tried, last) if compares else _try_or_stop(untried)


def _cure(settings: Sequence[Setting], default: TrialResult, known: Known) -> Next:
    if default.outcome is Outcome.SKIPPED:
        return Stop()
    families = suspected_families(default, known.broken_pairs, known.suspects)
    return _for_cure(find_cure(by_suspicion(settings, families), known.results).next)


def _for_cure(candidate: Candidate | None) -> Next:
    return Stop() if candidate is None else Try(candidate, is_for_cure=True)


def _try_or_stop(candidate: Candidate | None) -> Next:
    return Stop() if candidate is None else Try(candidate)


def _next_comparison(
    decisions: Sequence[Measure], known: Known, tried: Mapping[str, TrialResult], last: Candidate | None
) -> Next:
    compared = {duel.candidate for duel in known.compared}
    if AS_IS in tried and is_sound(tried[AS_IS]) and AS_IS not in compared:
        return Compare(AS_IS, DUEL_PAIRS)
    screened = screening_gains(decisions, known.results)
    heated = {duel.candidate for duel in known.heated}
    for name in heats(screened):
        if name not in heated:
            return Compare(name, 1)
    best = finalist(screened, known.heated)
    if best and best not in compared:
        return Compare(best, DUEL_PAIRS)
    return Try(last) if last is not None and last.name not in tried else Stop()
