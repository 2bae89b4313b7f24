"""Choose the next step of the search from the results so far.

The functions do no I/O. The coordinator calls these functions and carries out the returned step.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from preflight.model.baseline import NO_BASELINE, Baseline, wants_repetition
from preflight.model.collective import Collective
from preflight.model.gap import Gap
from preflight.model.run_spec import Measure
from preflight.model.trial import AS_IS, DEFAULT, Candidate, Setting, TrialResult
from preflight.search.late_rank import late_rank
from preflight.search.settings.closing import (
    OF_HALVES,
    OF_MANY,
    closing,
    control_of_failures,
    has_time_for,
    leaves_time,
)
from preflight.search.settings.control import as_repeated, has_failed, is_lost, is_repeated
from preflight.search.settings.duel import (
    DUEL_PAIRS,
    FAR_SLOWER,
    finalist,
    heats,
    is_sound,
    screening_gains,
    slowdown,
)
from preflight.search.settings.infiniband import ib_is_suspect, in_order
from preflight.search.settings.minimise import Cure, env_of, find_cure, minimise_inherited
from preflight.search.settings.steps import Again, Compare, Known, Next, Repeat, Stop, Try
from preflight.search.settings.suspicion import by_suspicion, suspected_families

FEWEST = "fewest settings"  # the result of a search among settings, measured at every size of a workaround
RECOMMENDED = "with the .env"  # the same on pages: what a search ended with, as the job will have it


def shown_name(candidate: str) -> str:
    """Return the name of a test run as the table of test runs shows it."""
    return RECOMMENDED if candidate == FEWEST else candidate


@dataclass(frozen=True, slots=True)
class _Asked:
    """The arguments of `next_step`, and the results by configuration."""

    candidates: Sequence[Candidate]
    screen_all: bool
    decisions: Sequence[Measure]
    known: Known
    settings: Sequence[Setting]
    inherited: Sequence[Setting]
    last: Candidate | None
    baseline: Baseline
    cure_measures: Sequence[Measure]
    runs_each: int
    on_gpus: bool
    tried: Mapping[str, TrialResult]

    def untried(self, candidates: Sequence[Candidate]) -> Candidate | None:
        return next((each for each in candidates if each.name not in self.tried), None)


def next_step(
    candidates: Sequence[Candidate],
    screen_all: bool,
    decisions: Sequence[Measure],
    known: Known,
    settings: Sequence[Setting] = (),
    inherited: Sequence[Setting] = (),
    last: Candidate | None = None,
    baseline: Baseline = NO_BASELINE,
    cure_measures: Sequence[Measure] = (),
    runs_each: int = 0,
    on_gpus: bool = False,
) -> Next:
    """Return the next step of the search, given the results so far in `known`.

    A workaround gets an A/B test with `runs_each` runs per side.
    """
    # The default settings and the inherited environment are tested first. If the default settings fail but the
    # inherited settings work, the search finds which of the `inherited` settings are needed. If both fail, the search
    # looks for a workaround among the `settings`, or tests every configuration if `settings` is empty. If the default
    # settings work, inherited settings that look far slower are compared with the default settings. With `screen_all`,
    # every configuration is tested, and the best configuration is compared again. A configuration that fails gets an
    # A/B test. A thorough search ends with the configuration `last`. If the default settings look slow, compared with
    # `baseline` or because of a late rank, they are repeated first. `on_gpus` selects the limits for late GPU ranks. If
    # SIGKILL ended a rank of the default settings, the default settings are repeated first, because the kill came from
    # outside. The search stops if a process can't be killed, or if no A/B test can prove a workaround any more.
    # Settings that failed once are not used as a workaround.
    if known.unkillable or is_lost(known.results, known.reruns):
        return Stop()
    known = replace(known, results=as_repeated(known.results, known.reruns))
    tried = {result.candidate: result for result in known.results}
    asked = _Asked(
        candidates, screen_all, decisions, known, settings, inherited, last, baseline, cure_measures, runs_each,
        on_gpus, tried,
    )  # fmt: skip
    default = tried.get(DEFAULT)
    first = next((each for each in candidates if each.name in (DEFAULT, AS_IS) and each.name not in tried), None)
    if first is not None:
        return Try(first)
    if default is not None and is_sound(default):
        return _beside_a_working_default(asked, default)
    return _without_a_working_default(asked, default)


def _without_a_working_default(asked: _Asked, default: TrialResult | None) -> Next:
    """Return the next step if the default settings failed, or if their test run did not finish."""
    known, as_is = asked.known, asked.tried.get(AS_IS)
    if default is not None and _was_killed(default) and asked.runs_each and not is_repeated((), known.reruns):
        return Repeat(Candidate(DEFAULT, (), default.reason, default.scope))
    if default is not None and (asked.settings or (as_is is not None and is_sound(as_is))):
        return _cure(asked, default)
    if default is not None and has_failed(default) and ib_is_suspect(default):
        untried = _untried_without_ib(asked, default)
    else:
        untried = asked.untried(asked.candidates)
    if untried is not None:
        return Try(untried)
    if default is None or not has_failed(default):
        return Stop()
    return closing(default, _best_of(asked.candidates, known.results), known, asked.runs_each, OF_MANY)


def _beside_a_working_default(asked: _Asked, default: TrialResult) -> Next:
    known = asked.known
    if wants_repetition(asked.baseline, (*known.results, *known.repeats)):
        return Again(len(known.repeats) + 1, "it looked slow compared with the baseline")
    late = late_rank(default, asked.on_gpus)
    if late and asked.runs_each and not known.repeats:
        return Again(1, f"rank {late[0].time.rank} was late at every size")
    turn = control_of_failures(default, asked.candidates, known, asked.runs_each)
    untried = asked.untried([each for each in asked.candidates if not each.only_cures])
    if turn is not None or not asked.screen_all:
        return turn or _comparison_with_inherited(asked, default) or Stop()
    return _next_comparison(asked.decisions, known, asked.tried, asked.last) if untried is None else Try(untried)


def _comparison_with_inherited(asked: _Asked, default: TrialResult) -> Compare | None:
    """Return a comparison that would prove that inherited settings make the job far slower.

    Return None if the comparison is not needed, or if there is not enough time.
    """
    as_is = asked.tried.get(AS_IS)
    if as_is is None or not is_sound(as_is) or any(duel.candidate == AS_IS for duel in asked.known.compared):
        return None
    pairs_s = DUEL_PAIRS * max(as_is.duration_s, default.duration_s)
    is_worth_it = asked.on_gpus and slowdown(as_is, default) > FAR_SLOWER.value and pairs_s < asked.known.left_s
    return Compare(AS_IS, DUEL_PAIRS) if is_worth_it else None


def _was_killed(default: TrialResult) -> bool:
    """Return whether a rank died by SIGKILL. No NCCL setting causes this, so a second run may succeed."""
    return has_failed(default) and any(end.ended == "signal" and "SIGKILL" in end.detail for end in default.ranks)


def _untried_without_ib(asked: _Asked, default: TrialResult) -> Candidate | None:
    """Return the next configuration to test if InfiniBand is suspect.

    First come the configurations that the log suggests, then sockets, then the others. Return None if a configuration
    that keeps InfiniBand works. If only sockets work, one more configuration that keeps InfiniBand is tested, unless
    too little time would remain for the A/B confirmation.
    """
    order = in_order(asked.candidates, default, asked.known.node_sizes)
    cured = [each for each in asked.candidates if each.name in asked.tried and is_sound(asked.tried[each.name])]
    if any(each not in order.sockets and each.name != AS_IS for each in cured):
        return None
    if not cured:
        as_planned = [each for each in asked.candidates if each not in order.useless]
        return asked.untried([*order.first, *order.sockets, *as_planned])
    if order.is_of_memory or not leaves_time(default, asked.known, asked.runs_each):
        return None
    ways = [each for each in (*order.first, *order.others) if each not in order.sockets]
    return asked.untried(ways[: len(order.first) + 1])


def _cure(asked: _Asked, default: TrialResult) -> Next:
    """Return the next step of the search for the fewest settings that work.

    After the search, return the next step of the A/B confirmation.
    """
    if not has_failed(default):
        return Stop()
    known, runs_each = asked.known, asked.runs_each
    found = _found(asked, default)
    if found.next is not None and has_time_for(found, default, known, runs_each):
        if found.repeats:
            return Repeat(found.next)
        return Try(found.next, is_for_cure=True, to_failure=bool(found.on))
    chosen = _latest(known.results, env_of(found.on))
    if chosen is not None and len(chosen.results) < len(asked.cure_measures):
        return Try(Candidate(FEWEST, chosen.env, "what is needed, at every size", chosen.scope), is_for_cure=True)
    of_trial = chosen and Candidate(chosen.candidate, chosen.env, chosen.reason, chosen.scope)
    # Settings of which no trial was made are all of those that were inherited.
    as_is = next((each for each in asked.candidates if each.name == AS_IS), None) if found.on else None
    return closing(default, of_trial or as_is, known, runs_each, OF_HALVES)


def _found(asked: _Asked, default: TrialResult) -> Cure:
    """Return the current state of the search for the fewest settings that work."""
    known, as_is = asked.known, asked.tried.get(AS_IS)
    needed = to_failure(asked.cure_measures, known.failed_at)
    # A trial that worked and ended before where another failed says nothing of that.
    results = [each for each in known.results if not is_sound(each) or len(each.results) >= len(needed)]
    if as_is is not None and is_sound(as_is):
        return minimise_inherited(asked.inherited, results, lambda env: is_repeated(env, known.reruns))
    families = suspected_families(default, known.broken_pairs, known.suspects)
    ordered = by_suspicion(asked.settings, families)
    front = sum(not families.intersection(each.families) for each in ordered)
    proved = [each for each in reversed(asked.settings) if known.broken_pairs and each.name.startswith("NCCL_P2P_")]
    return find_cure(ordered, results, front, lambda env: is_repeated(env, known.reruns), proved)


def to_failure(cure_measures: Sequence[Measure], failed_at: Sequence[Measure]) -> tuple[Measure, ...]:
    """Return the measurements in `cure_measures` up to the largest size in `failed_at`, in order of size.

    If `failed_at` is empty, the result is only the first measurement.
    """
    largest = max((each.nominal_bytes for each in failed_at), default=0)
    places = list(Collective)
    whole = {(each.nominal_bytes, places.index(each.collective)): each for each in (*cure_measures, *failed_at)}
    ordered = [whole[key] for key in sorted(whole)]
    return tuple(each for each in ordered if each.nominal_bytes <= largest) or tuple(ordered[:1])


def _latest(results: Sequence[TrialResult], env: tuple[tuple[str, str], ...]) -> TrialResult | None:
    same = [each for each in results if env and tuple(sorted(each.env)) == env and is_sound(each)]
    return same[-1] if same else None


def _best_of(candidates: Sequence[Candidate], results: Sequence[TrialResult]) -> Candidate | None:
    """Return the working configuration that has the fewest settings, or None if no configuration works.

    Among configurations with the same number of settings, return the fastest.
    """
    sound = [each for each in results if is_sound(each) and each.env and each.candidate not in (DEFAULT, AS_IS)]
    best = min(sound, key=lambda each: (len(each.env), -_mean_busbw(each), each.candidate), default=None)
    return next((each for each in candidates if best is not None and each.name == best.candidate), None)


def _mean_busbw(result: TrialResult) -> float:
    speeds = [each.busbw_gb_s for each in result.results if not isinstance(each.busbw_gb_s, Gap)]
    return statistics.fmean(speeds) if speeds else 0.0


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
