"""The search for the fewest settings, told by what it found instead of trial by trial."""

from __future__ import annotations

from collections.abc import Iterable

from preflight.model.report import Report
from preflight.model.trial import Outcome, TrialResult
from preflight.plan.cure import CORNER
from preflight.plan.duel import is_sound
from preflight.render.text import Style, clean, heading, pairs

WITHOUT = "without "
AS_IS_WITHOUT = f"as-is {WITHOUT}"
ALONE = "only "


def is_step(trial: TrialResult) -> bool:
    """Tell whether a trial only led to another one; what is recommended is shown beside the default."""
    return trial.candidate.startswith((CORNER, WITHOUT, AS_IS_WITHOUT, ALONE)) or " for NCCL_" in trial.candidate


def search_section(report: Report, style: Style) -> list[str]:
    """Return what was needed and what was not, with what happened without it; nothing where nothing was searched."""
    steps = [trial for trial in report.trials if is_step(trial)]
    if not steps:
        return []
    items = [*_corners(steps), *_given_up(steps), *_others(steps)]
    return [*heading("Which settings are needed", style), *pairs(items, style.width)]


def _corners(steps: Iterable[TrialResult]) -> Iterable[tuple[str, str]]:
    for trial in steps:
        if trial.candidate.startswith(CORNER):
            chosen = trial.candidate.removeprefix(CORNER).lstrip(", ")
            what = f"all together, {chosen}" if chosen else "all together"
            names = ", ".join(f"{name}={value}" for name, value in trial.env)
            yield clean(what), clean(f"{_ending(trial)}, with {names}")


def _given_up(steps: Iterable[TrialResult]) -> Iterable[tuple[str, str]]:
    tried = [(_subject(trial), trial) for trial in steps if _subject(trial)]
    spared = [subject for subject, trial in tried if is_sound(trial)]
    if spared:
        each = "it" if len(spared) == 1 else "each of them"
        yield "not needed", clean(f"{', '.join(spared)}: the rest works without {each}")
    for subject, trial in tried:
        if not is_sound(trial):
            word = "not tried" if trial.outcome is Outcome.SKIPPED else "needed"
            yield word, clean(f"{subject}: without it {_ending(trial)}")


def _others(steps: Iterable[TrialResult]) -> Iterable[tuple[str, str]]:
    for trial in steps:
        if not _subject(trial) and not trial.candidate.startswith(CORNER):
            yield clean(trial.candidate), clean(_ending(trial))


def _subject(trial: TrialResult) -> str:
    """Return the setting that a trial gave up, "" for other trials."""
    for start in (AS_IS_WITHOUT, WITHOUT):
        if trial.candidate.startswith(start):
            return trial.candidate.removeprefix(start)
    return ""


def _ending(trial: TrialResult) -> str:
    if is_sound(trial):
        return "works"
    return trial.problem or trial.outcome.value.replace("_", " ")
