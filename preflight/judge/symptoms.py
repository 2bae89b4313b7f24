"""Causes that a failed trial's own error text gives away."""

from __future__ import annotations

from dataclasses import dataclass

from preflight.judge.check import Case
from preflight.judge.finding_text import first_line
from preflight.judge.node_limits import owner_of_run
from preflight.model.finding import Blame, Evidence
from preflight.model.trial import FAILED, TrialResult

# NCCL's texts, facts 2.2 and 7.5; compared without case.
SHM_TEXTS = (("error while creating shared memory segment",), ("failed to extend /dev/shm",))
SHM_HINTS = (("no space left",), ("bus error",), ("sigbus",))  # prove nothing where /dev/shm has room
MEMLOCK_TEXTS = (("ibv_reg_mr", "cannot allocate memory"), ("ibv_create_qp", "cannot allocate memory"))
NOFILE_TEXTS = (("too many open files",),)
PIDS_TEXTS = (
    ("can't start new thread",),
    ("pthread_create", "resource temporarily unavailable"),
    ("blockingioerror", "resource temporarily unavailable"),
    ("runtimeerror: resource temporarily unavailable",),  # std::system_error of a thread that could not be started
)
CONFIGURATION_TEXTS = (
    ("duplicate gpu detected",),
    ("no kernel image is available",),
    ("driver on your system is too old",),
    ("driver version is insufficient",),
)

Texts = tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Symptom:
    """A line of a failed trial that gives its cause away."""

    candidate: str
    rank: int
    line: str

    def evidence(self) -> Evidence:
        """Return the line as evidence."""
        return Evidence("error text", self.line, f"trial {self.candidate}, rank {self.rank}")


def symptoms_in(trial: TrialResult, texts: Texts) -> tuple[Symptom, ...]:
    """Return the lines of one failed trial that hold all the words of one of `texts`, at most one a rank."""
    if trial.outcome not in FAILED:
        return ()
    found = []
    for end in trial.ranks:
        lines = (*end.detail.splitlines(), *(line.text for line in end.log))
        text = "\n".join(lines).lower()
        words = next((words for words in texts if all(word in text for word in words)), None)
        if words:
            line = next((line for line in lines if words[-1] in line.lower()), end.detail)
            found.append(Symptom(trial.candidate, end.rank, first_line(line)))
    return tuple(found)


def symptoms_of(case: Case, texts: Texts) -> tuple[Symptom, ...]:
    """Return the lines of all failed trials that give one of `texts` away."""
    return tuple(line for trial in case.trials for line in symptoms_in(trial, texts))


def blame_by_text(case: Case, trial: TrialResult) -> Blame | None:
    """Return who caused a failure whose text names the cause; None where it does not."""
    if symptoms_in(trial, CONFIGURATION_TEXTS):
        return Blame.CONFIGURATION
    if symptoms_in(trial, SHM_TEXTS + MEMLOCK_TEXTS + NOFILE_TEXTS + PIDS_TEXTS):
        return owner_of_run(case)
    return None
