"""Which settings a default that fails needs, and for each the trial that failed without it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from preflight.model.trial import AS_IS, Outcome, Setting, TrialResult
from preflight.plan.cure import env_of

FAILED = frozenset({Outcome.HANG, Outcome.CRASH, Outcome.INIT_ERROR, Outcome.WRONG_DATA})


@dataclass(frozen=True, slots=True)
class Needed:
    """One setting of those that work together; `failed` is None where it is not known to be needed."""

    setting: Setting
    failed: TrialResult | None


def settings_on(settings: Sequence[Setting], trial: TrialResult) -> tuple[Setting, ...]:
    """Return the settings whose variables a trial had."""
    there = dict(trial.env)
    return tuple(setting for setting in settings if setting.env and dict(setting.env).items() <= there.items())


def why_needed(settings: Sequence[Setting], best: TrialResult, trials: Sequence[TrialResult]) -> tuple[Needed, ...]:
    """Return the settings of the trial that worked with the failure of each: the rest alone, or a part of the rest."""
    on = settings_on(settings, best)
    failures = [trial for trial in trials if trial.outcome in FAILED and trial.candidate != AS_IS]
    return tuple(Needed(setting, _failure_without(setting, on, failures)) for setting in on)


def _failure_without(setting: Setting, on: Sequence[Setting], failures: Sequence[TrialResult]) -> TrialResult | None:
    """Return the failure that had all of the rest, the fewest others beside it, and not this setting.

    That more settings did not help is what shows the need: with fewer it would have failed as well.
    """
    rest = dict(env_of([each for each in on if each is not setting])).items()
    own = dict(setting.env).items()
    fit = [trial for trial in failures if rest <= dict(trial.env).items() and not own <= dict(trial.env).items()]
    return min(fit, key=lambda trial: (len(trial.env), trial.candidate), default=None)
