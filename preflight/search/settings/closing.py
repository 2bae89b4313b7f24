"""The closing control: which run is next, and whether there is time for it. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from preflight.model.trial import DEFAULT, Candidate, TrialResult
from preflight.search.settings.control import has_failed, is_repeated, order_of_turns, times_repeated
from preflight.search.settings.duel import is_sound
from preflight.search.settings.minimise import Cure
from preflight.search.settings.steps import Known, Next, Repeat, Stop


def has_time_for(found: Cure, default: TrialResult, known: Known, runs_each: int) -> bool:
    """Return whether a step leaves time for the control: all of it if the step works, one run of each if it fails."""
    if not found.on or not runs_each:
        return True
    fails_s, works_s = _costs_s(default, known)
    pair_s = fails_s + works_s
    if found.repeats:
        return known.left_s - fails_s >= runs_each * pair_s
    return known.left_s - fails_s >= pair_s and known.left_s - works_s >= runs_each * pair_s


def leaves_time(default: TrialResult, known: Known, runs_each: int) -> bool:
    """Return whether one more failing trial leaves time for the control of a workaround that was found."""
    fails_s, works_s = _costs_s(default, known)
    return known.left_s - fails_s >= runs_each * (fails_s + works_s)


def _costs_s(default: TrialResult, known: Known) -> tuple[float, float]:
    """Return how long a run of a default that fails takes, and how long one that works."""
    again = [each.duration_s for each in known.reruns if each.candidate == DEFAULT]
    worked = [each.duration_s for each in known.results if is_sound(each) and each.candidate != DEFAULT]
    return min([default.duration_s, *again]), max(worked[-2:], default=0.0)


def closing(default: TrialResult, chosen: Candidate | None, known: Known, runs_each: int) -> Next:
    """Return the next run of the control, or of default settings that no workaround helps.

    Those are repeated as often as a control would: a fault of the first trials only is no steady one.
    """
    if chosen is None:
        may = (
            has_failed(default) and times_repeated((), known.reruns) < runs_each and known.left_s >= default.duration_s
        )
        return Repeat(Candidate(DEFAULT, (), default.reason, default.scope)) if may else Stop()
    return _turn(default, chosen, known, _costs_s(default, known), runs_each) or Stop(chosen)


def _turn(
    default: TrialResult, other: Candidate, known: Known, costs_s: tuple[float, float], runs_each: int
) -> Repeat | None:
    """Return the next turn of the control of the default and a candidate; None where it is over or has no time."""
    done = [each for each in known.reruns if each.control == other.name]
    pair_s = sum(costs_s)
    fits = [n for n in range(runs_each + 1) if n * pair_s <= known.left_s]
    runs = done[0].runs_each if done else max(fits, default=0)
    turns = order_of_turns(known.seed, other.name, runs)
    if len(done) >= len(turns):
        return None
    of_default = Candidate(DEFAULT, (), default.reason, default.scope)
    return Repeat(of_default if turns[len(done)] else other, other.name, runs)


def control_of_failures(
    default: TrialResult, candidates: Sequence[Candidate], known: Known, runs_each: int
) -> Repeat | None:
    """Return the next control run of a candidate that failed although the default settings work.

    The control of the first such candidate shows whether the default settings are sound. The others need one
    repetition.
    """
    failed = [each for each in known.results if has_failed(each) and each.candidate != DEFAULT]
    named = {each.name: each for each in candidates}
    for place, result in enumerate(each for each in failed if each.candidate in named):
        other = named[result.candidate]
        if place == 0:
            turn = _turn(default, other, known, (default.duration_s, result.duration_s), runs_each)
            if turn is not None:
                return turn
        elif runs_each and not is_repeated(other.env, known.reruns) and other.env:
            return Repeat(other)
    return None
