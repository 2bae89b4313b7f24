"""Controls as a run ends with them, for reports and judgements that no search led to."""

from __future__ import annotations

from collections.abc import Sequence

from preflight.model.trial import AS_IS, DEFAULT, NO_CONTROL, Control, Outcome, Rerun, TrialResult
from preflight.search.settings.duel import is_sound


def confirmed(trials: Sequence[TrialResult], chosen: str, runs_each: int = 4) -> Control:
    """Return a control in which the default failed each time as it had, and the chosen settings worked each time."""
    default = next(each for each in trials if each.candidate == DEFAULT)
    best = next(each for each in reversed(trials) if each.candidate == chosen)
    turns = [
        Rerun(DEFAULT, (), default.outcome, default.problem, 20.0, chosen, runs_each),
        Rerun(chosen, best.env, Outcome.OK, "", 7.0, chosen, runs_each),
    ]
    return Control(4711, runs_each, chosen, best.env, tuple(turns * runs_each))


def confirmed_best(trials: Sequence[TrialResult]) -> Control:
    """Return the control of the fewest settings that work, the fastest of equals; else of the inherited ones."""
    default = next((each for each in trials if each.candidate == DEFAULT), None)
    if default is None or is_sound(default):
        return NO_CONTROL
    working = [each for each in trials if is_sound(each) and each.candidate != AS_IS and each.env]
    best = min(working, key=lambda each: (len(each.env), _median_us(each), each.candidate), default=None)
    if best is None:
        best = next((each for each in trials if each.candidate == AS_IS and is_sound(each)), None)
    if best is None:  # nothing cures it, and it failed again
        again = Rerun(DEFAULT, (), default.outcome, default.problem, 20.0)
        return NO_CONTROL if default.outcome is Outcome.SKIPPED else Control(4711, 4, reruns=(again,))
    return confirmed(trials, best.candidate)


def _median_us(trial: TrialResult) -> float:
    return sum(each.median_us for each in trial.results if isinstance(each.median_us, float))
