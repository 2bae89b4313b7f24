"""Which parts of a run came to their end, and what a run says that was cut short before it could answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from preflight.judge.wording import first_line
from preflight.model.report import Phase, PhaseEnd
from preflight.model.run import Duel
from preflight.model.trial import Outcome, TrialResult

PROBE, START, TRIALS, COMPARISONS, JUDGING = "probe", "start of the ranks", "trials", "comparisons", "judging"


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run came."""

    probed: bool
    launched: bool
    ready: bool  # every rank had imported torch
    through: bool  # the ranks said that they were done
    problem: str  # what cut it short, "" where nothing did
    trials: tuple[TrialResult, ...] = ()
    duels: tuple[Duel, ...] = ()
    judged: str | None = ""  # why judging failed, "" where it did not, None where it was not reached


def phases_of(run: Progress) -> tuple[Phase, ...]:
    """Return the phases in their order, each with what it gave or what cut it short."""
    why = first_line(run.problem)
    if not run.probed:
        later = (START, TRIALS, JUDGING)
        return (Phase(PROBE, PhaseEnd.PARTIAL, why), *(Phase(name, PhaseEnd.NOT_REACHED, why) for name in later))
    return (
        Phase(PROBE, PhaseEnd.COMPLETED, "the facts of the node"),
        _start(run, why),
        _trials(run, why),
        *_comparisons(run.duels),
        _judging(run, why),
    )


def _start(run: Progress, why: str) -> Phase:
    if not run.launched:
        return Phase(START, PhaseEnd.NOT_REACHED, why)
    if not run.ready:
        return Phase(START, PhaseEnd.PARTIAL, why or "the ranks never said that they were ready")
    return Phase(START, PhaseEnd.COMPLETED, "every rank was up")


def _trials(run: Progress, why: str) -> Phase:
    skipped = [trial for trial in run.trials if trial.outcome is Outcome.SKIPPED]
    count = len(run.trials) - len(skipped)
    told = f"{count} tried" if count else "none came to its end"
    if not run.through:
        end = PhaseEnd.PARTIAL if run.ready else PhaseEnd.NOT_REACHED
        return Phase(TRIALS, end, f"{told}: {why}" if why else told)
    if skipped:
        names = ", ".join(trial.candidate for trial in skipped)
        return Phase(TRIALS, PhaseEnd.PARTIAL, f"{told}; not {names}: {first_line(skipped[0].problem)}")
    return Phase(TRIALS, PhaseEnd.COMPLETED, told)


def _comparisons(duels: Sequence[Duel]) -> tuple[Phase, ...]:
    if not duels:
        return ()
    cut = [duel for duel in duels if duel.problem]
    if not cut:
        return (Phase(COMPARISONS, PhaseEnd.COMPLETED, f"{len(duels)} measured afresh against the default"),)
    told = "; ".join(f"{duel.candidate}: {first_line(duel.problem)}" for duel in cut)
    return (Phase(COMPARISONS, PhaseEnd.PARTIAL, told),)


def _judging(run: Progress, why: str) -> Phase:
    if run.judged is None:
        return Phase(JUDGING, PhaseEnd.NOT_REACHED, why)
    if run.judged:
        return Phase(JUDGING, PhaseEnd.PARTIAL, first_line(run.judged))
    return Phase(JUDGING, PhaseEnd.COMPLETED, "every check had its turn")
