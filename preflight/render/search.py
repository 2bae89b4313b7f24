"""The search for the fewest settings, told by what it found instead of trial by trial."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from preflight.model.report import Report
from preflight.model.trial import Outcome, TrialResult
from preflight.plan.cure import CORNER
from preflight.plan.duel import is_sound
from preflight.render.text import Style, clean, heading, pairs

GIVEN_UP = re.compile(r"is (.{1,200}?) needed\? ")  # the reason of a trial that does without one setting
OTHER_STEPS = re.compile(rf"{CORNER}|only |hca .* for ")


def is_step(trial: TrialResult) -> bool:
    """Tell whether a trial only led to another one; what is recommended is shown beside the default."""
    return bool(GIVEN_UP.match(trial.reason) or OTHER_STEPS.match(trial.candidate))


def search_section(report: Report, style: Style) -> list[str]:
    """Return what was needed and what was not, with what happened without it; nothing where nothing was searched."""
    steps = [trial for trial in report.trials if is_step(trial)]
    if not steps:
        return []
    items = [*_corners(steps), *_given_up(steps), *_others(steps)]
    return [*heading("Which settings are needed", style), *pairs(items, style.width)]


def _corners(steps: Sequence[TrialResult]) -> Iterator[tuple[str, str]]:
    for trial in steps:
        if trial.candidate.startswith(CORNER):
            names = ", ".join(f"{name}={value}" for name, value in trial.env)
            yield "all at once", clean(f"{_ending(trial)}: {names}")


def _given_up(steps: Sequence[TrialResult]) -> Iterator[tuple[str, str]]:
    tried = [(match[1], trial) for trial in steps if (match := GIVEN_UP.match(trial.reason))]
    spared = [subject for subject, trial in tried if is_sound(trial)]
    if spared:
        each = "it" if len(spared) == 1 else "each of them"
        yield "not needed", clean(f"{', '.join(spared)}: the rest works without {each}")
    for subject, trial in tried:
        if not is_sound(trial):
            word = "not tried" if trial.outcome is Outcome.SKIPPED else "needed"
            yield word, clean(f"{subject}: without it {_ending(trial)}")


def _others(steps: Sequence[TrialResult]) -> Iterator[tuple[str, str]]:
    for trial in steps:
        if not GIVEN_UP.match(trial.reason) and not trial.candidate.startswith(CORNER):
            yield clean(trial.candidate), clean(_ending(trial))


def _ending(trial: TrialResult) -> str:
    if is_sound(trial):
        return "works"
    return trial.problem or trial.outcome.value.replace("_", " ")
