"""The phases of a run, and the reason if a phase was cut short or not reached."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from preflight.judge.finding_text import first_line
from preflight.model.report import RunPhase, RunPhaseEnd
from preflight.model.run_spec import Duel
from preflight.model.trial import Outcome, TrialResult

PROBE, START, TRIALS, COMPARISONS, JUDGING = "probe", "start of the ranks", "trials", "comparisons", "judging"


@dataclass(frozen=True, slots=True)
class RunProgress:
    """The progress of a run: the phases that it reached, its results, and the reason if it was cut short."""

    probed: bool
    launched: bool
    ready: bool  # every rank had imported torch
    through: bool  # the ranks reported that all trials were done
    problem: str  # what cut the run short; "" if nothing did
    trials: tuple[TrialResult, ...] = ()
    duels: tuple[Duel, ...] = ()
    without_room: str = ""  # the sizes that were left out for lack of memory
    judged: str | None = ""  # why judging failed; "" if it did not, None if it was not reached


def phases_of(run: RunProgress) -> tuple[RunPhase, ...]:
    """Return the phases of a run in order, each with its result or the reason why it was not completed."""
    why = first_line(run.problem)
    if not run.probed:
        later = (RunPhase(name, RunPhaseEnd.NOT_REACHED, why) for name in (START, TRIALS, JUDGING))
        return (RunPhase(PROBE, RunPhaseEnd.PARTIAL, why), *later)
    return (
        RunPhase(PROBE, RunPhaseEnd.COMPLETED, "the facts of the node"),
        _start(run, why),
        _trials(run, why),
        *([_comparisons(run.duels)] if run.duels else []),
        _judging(run, why),
    )


def _start(run: RunProgress, why: str) -> RunPhase:
    if not run.launched:
        return RunPhase(START, RunPhaseEnd.NOT_REACHED, why)
    if not run.ready:
        return RunPhase(START, RunPhaseEnd.PARTIAL, why or "the ranks did not report that they were ready")
    return RunPhase(START, RunPhaseEnd.COMPLETED, "every rank started")


def _trials(run: RunProgress, why: str) -> RunPhase:
    skipped = [trial for trial in run.trials if trial.outcome is Outcome.SKIPPED]
    count = len(run.trials) - len(skipped)
    detail = f"{count} tried" if count else "no trial was completed"
    if not run.ready and not run.through:
        return RunPhase(TRIALS, RunPhaseEnd.NOT_REACHED, why or detail)
    if not run.through:
        return RunPhase(TRIALS, RunPhaseEnd.PARTIAL, f"{why} ({detail})" if why else detail)
    if skipped:
        names = ", ".join(trial.candidate for trial in skipped)
        return RunPhase(TRIALS, RunPhaseEnd.PARTIAL, f"{detail}; not {names}: {first_line(skipped[0].problem)}")
    if run.without_room:
        return RunPhase(TRIALS, RunPhaseEnd.PARTIAL, f"{detail}; {run.without_room}")
    return RunPhase(TRIALS, RunPhaseEnd.COMPLETED, detail)


def _comparisons(duels: Sequence[Duel]) -> RunPhase:
    cut = "; ".join(f"{duel.candidate}: {first_line(duel.problem)}" for duel in duels if duel.problem)
    if cut:
        return RunPhase(COMPARISONS, RunPhaseEnd.PARTIAL, cut)
    return RunPhase(COMPARISONS, RunPhaseEnd.COMPLETED, f"{len(duels)} compared with the default settings")


def _judging(run: RunProgress, why: str) -> RunPhase:
    if run.judged is None:
        return RunPhase(JUDGING, RunPhaseEnd.NOT_REACHED, why)
    if run.judged:
        return RunPhase(JUDGING, RunPhaseEnd.PARTIAL, first_line(run.judged))
    return RunPhase(JUDGING, RunPhaseEnd.COMPLETED, "every check was run")
