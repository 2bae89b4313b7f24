"""Choose the last runs of a search, which confirm a workaround or repeat a failure.

The functions do no I/O.
"""

from __future__ import annotations

from collections.abc import Sequence

from preflight.model.trial import DEFAULT, FAILED, Candidate, Control, TrialResult, odds
from preflight.search.settings.control import (
    PROVED_ODDS,
    blocks_of,
    has_failed,
    is_repeated,
    is_whole,
    odds_of,
    order_of_turns,
    times_worked,
)
from preflight.search.settings.duel import is_sound
from preflight.search.settings.minimise import Cure
from preflight.search.settings.steps import Known, Next, Repeat, Stop

OF_HALVES, OF_MANY = 2, 3  # runs in which a workaround must work before its control: from bisection, best of many
MOST_PAIRS = 12  # runs of a workaround, and of default settings that fail in only some of their runs


def has_time_for(found: Cure, default: TrialResult, known: Known, runs_each: int) -> bool:
    """Return whether the next step of the search, `found`, leaves time for the A/B test of the workaround."""
    # If the step works, an A/B test with `runs_each` runs per side must fit into the remaining time. If the step fails,
    # one run per side must fit. If the step is a repetition, the complete A/B test must fit even if the step fails.
    if not found.on or not runs_each:
        return True
    fails_s, works_s = _costs_s(default, known)
    pair_s = fails_s + works_s
    if found.repeats:
        return known.left_s - fails_s >= runs_each * pair_s
    return known.left_s - fails_s >= pair_s and known.left_s - works_s >= runs_each * pair_s


def leaves_time(default: TrialResult, known: Known, runs_each: int) -> bool:
    """Return whether one more failed test run leaves time for an A/B test with `runs_each` runs per side."""
    fails_s, works_s = _costs_s(default, known)
    return known.left_s - fails_s >= runs_each * (fails_s + works_s)


def _costs_s(default: TrialResult, known: Known) -> tuple[float, float]:
    """Return (duration of a run with the failing default settings, duration of a run that works), in seconds."""
    again = [each.duration_s for each in known.reruns if each.candidate == DEFAULT]
    worked = [each.duration_s for each in known.results if is_sound(each) and each.candidate != DEFAULT]
    return min([default.duration_s, *again]), max(worked[-2:], default=0.0)


def closing(default: TrialResult, chosen: Candidate | None, known: Known, runs_each: int, least_runs: int) -> Next:
    """Return the next run of the A/B test of the workaround `chosen`.

    If `chosen` is None, the failed default settings are repeated.
    """
    # The default settings are repeated because the fault may occur only sometimes. A workaround must work `least_runs`
    # times before its A/B test, if there is time.
    if chosen is None:
        took_s = [each.duration_s for each in known.reruns if each.candidate == DEFAULT and not each.control]
        is_cheap = sum(took_s) + default.duration_s <= (known.left_s + sum(took_s)) / 3
        can_prove = runs_each and odds(runs_each, runs_each) >= PROVED_ODDS.value
        most = MOST_PAIRS if can_prove and is_cheap else runs_each
        may = has_failed(default) and len(took_s) < most and known.left_s >= default.duration_s
        return Repeat(Candidate(DEFAULT, (), default.reason, default.scope)) if may else Stop()
    if not runs_each:
        return Stop(chosen)
    costs_s = _costs_s(default, known)
    is_begun = any(each.control for each in known.reruns)
    has_time = known.left_s - costs_s[1] >= runs_each * sum(costs_s)
    if not is_begun and has_time and times_worked(chosen, known.results, known.reruns) < least_runs:
        return Repeat(chosen)
    return _turn(default, chosen, known, costs_s, runs_each, MOST_PAIRS // runs_each) or Stop(chosen)


def _turn(
    default: TrialResult, other: Candidate, known: Known, costs_s: tuple[float, float], runs_each: int, most_blocks: int
) -> Repeat | None:
    """Return the next run of the A/B confirmation that compares the default settings with `other`.

    Return None if the confirmation is over or there is no time for a run.
    """
    blocks = blocks_of([each for each in known.reruns if each.control == other.name])
    block = blocks.pop() if blocks and not is_whole(blocks[-1]) else []
    if not block:
        control = Control(known.seed, runs_each, other.name, other.env, known.reruns)
        failed = [each.outcome in FAILED for each in control.turns(other.name) if each.candidate == DEFAULT]
        is_rare = 2 * sum(failed) < len(failed)  # more rounds would hardly ever prove a cure
        if is_rare or len(blocks) == most_blocks or odds_of(control) >= odds(runs_each, runs_each):
            return None
    pair_s = sum(costs_s)
    fits = [n for n in range(runs_each + 1) if n * pair_s <= known.left_s]
    runs = block[0].runs_each if block else max(fits, default=0)
    turns = order_of_turns(known.seed, other.name, runs, len(blocks))
    if not turns:
        return None
    of_default = Candidate(DEFAULT, (), default.reason, default.scope)
    return Repeat(of_default if turns[len(block)] else other, other.name, runs)


def control_of_failures(
    default: TrialResult, candidates: Sequence[Candidate], known: Known, runs_each: int
) -> Repeat | None:
    """Return the next repetition of a configuration that failed although the default settings work.

    Return None if no run is left.
    """
    # The first configuration of this kind gets an A/B test, which shows whether the default settings are sound. Every
    # other one is repeated once.
    failed = [each for each in known.results if has_failed(each) and each.candidate != DEFAULT]
    named = {each.name: each for each in candidates}
    for place, result in enumerate(each for each in failed if each.candidate in named):
        other = named[result.candidate]
        if place == 0:
            turn = _turn(default, other, known, (default.duration_s, result.duration_s), runs_each, 1)
            if turn is not None:
                return turn
        elif runs_each and not is_repeated(other.env, known.reruns) and other.env:
            return Repeat(other)
    return None
