"""Lines in the output of failed test runs that name the cause, and the component to blame."""

from __future__ import annotations

from dataclasses import dataclass

from preflight.judge.check import Case
from preflight.judge.finding_text import first_line
from preflight.judge.node_limits import owner_of_run
from preflight.model.error_texts import any_of
from preflight.model.finding import Blame, Evidence
from preflight.model.trial import FAILED, TrialResult

# Rows of `model/error_texts.py`.
SHM = ("shm.nccl",)
SHM_HINTS = ("shm.hint",)  # prove nothing where /dev/shm has room
MEMLOCK = ("ib.memlock",)
NOFILE = ("limit.nofile",)
PIDS = ("limit.pids",)
TOPOLOGY = ("topology.file",)
CONFIGURATION = ("duplicate.nccl", "version.too_old", "version.arch", *TOPOLOGY)


@dataclass(frozen=True, slots=True)
class Symptom:
    """An output line of a failed test run that names the cause."""

    candidate: str
    rank: int
    line: str

    def evidence(self) -> Evidence:
        """Return the line as evidence, with the test run and the rank as its source."""
        return Evidence("error text", self.line, f"trial {self.candidate}, rank {self.rank}")


def symptoms_in(trial: TrialResult, texts: tuple[str, ...]) -> tuple[Symptom, ...]:
    """Return the output lines of a failed test run that match one of `texts`, at most one line per rank.

    Return () if the test run did not fail.
    """
    # `texts` are names of rows in model/error_texts.py.
    if trial.outcome not in FAILED:
        return ()
    says = any_of(*texts).search
    said = ((end.rank, (*end.detail.splitlines(), *(each.text for each in end.log))) for end in trial.ranks)
    found = ((rank, next(filter(says, lines), None)) for rank, lines in said)
    return tuple(Symptom(trial.candidate, rank, first_line(line)) for rank, line in found if line is not None)


def symptoms_of(case: Case, texts: tuple[str, ...]) -> tuple[Symptom, ...]:
    """Return the output lines of all failed test runs that match one of `texts` (rows in model/error_texts.py)."""
    return tuple(line for trial in case.trials for line in symptoms_in(trial, texts))


def blame_by_text(case: Case, trial: TrialResult) -> Blame | None:
    """Return the component to blame for a failed test run if its output names the cause, else None."""
    if symptoms_in(trial, CONFIGURATION):
        return Blame.CONFIGURATION
    if symptoms_in(trial, SHM + MEMLOCK + NOFILE + PIDS):
        return owner_of_run(case)
    return None
