"""The default settings hang, crash or do not start."""

from __future__ import annotations

from collections.abc import Iterator

from preflight.judge.check import Case, RunCheck
from preflight.judge.symptoms import blame_by_text
from preflight.judge.wording import first_line, ranks_text
from preflight.judge.workaround import cures, default_trial, hidden_fault
from preflight.model.finding import Blame, Evidence, Finding, Severity
from preflight.model.trial import Outcome, TrialResult

WORDS = {Outcome.HANG: "hung", Outcome.CRASH: "crashed", Outcome.INIT_ERROR: "could not start"}
WAITING_OR_FINE = frozenset({"done", "killed"})
MOST_RANKS_SHOWN = 8


def judge(case: Case) -> Iterator[Finding]:
    """Yield one finding where the default trial failed: FAIL, or WARN where another candidate works."""
    default = default_trial(case.trials)
    if default is None or default.outcome not in WORDS:
        return
    working = cures(case)
    yield Finding(
        check=CHECK.name,
        blame=_blame(case, default),
        severity=Severity.WARN if working else Severity.FAIL,
        subject=f"trial {default.candidate}",
        problem=describe(default),
        fix=_fix(case, default),
        evidence=(*evidence(default), *(Evidence("works", trial.candidate, "its own trial") for trial in working)),
    )


def describe(trial: TrialResult) -> str:
    """Return the failure in one line that names ranks and stage."""
    stages = {stage for rank, stage in trial.stages if not trial.culprits or rank in trial.culprits}
    told = f"{WORDS.get(trial.outcome, trial.outcome.value)}: {ranks_text(trial.culprits)}"
    return trial.problem or f"{told} in stage {', '.join(sorted(stages)) or 'unknown'}"


def evidence(trial: TrialResult) -> tuple[Evidence, ...]:
    """Return the outcome, and how each rank that was not merely told to stop ended."""
    source = f"trial {trial.candidate}"
    ends = [end for end in trial.ranks if end.ended not in WAITING_OR_FINE]
    shown = tuple(
        Evidence(f"rank {end.rank}", f"{end.ended} in {end.stage}: {first_line(end.detail) or 'no message'}", source)
        for end in ends[:MOST_RANKS_SHOWN]
    )
    return (Evidence("outcome", trial.outcome.value, source), *shown)


def _blame(case: Case, default: TrialResult) -> Blame:
    told = blame_by_text(case, default)
    if told is not None:
        return told
    hidden = hidden_fault(case)
    if hidden is not None:
        return hidden.blame
    # A cure that switches no transport off (an interface's name, a neutralised nccl.conf) shows a sound machine.
    # What works on each node alone and not between them accuses no node: who it is takes more trials to tell.
    return Blame.CONFIGURATION if cures(case) or len(case.nodes) > 1 else Blame.HOST


def _fix(case: Case, default: TrialResult) -> str:
    hidden = hidden_fault(case)
    if hidden is not None:
        return f"`source preflight.env` before the job meanwhile; {hidden.repair}"
    if cures(case):
        return "`source preflight.env` before the job, and put its lines where the site's settings live"
    who = ranks_text(default.culprits) if default.culprits else "each rank"
    gpu_logs = ", `dmesg | grep -iE 'xid|nvrm'`, `nvidia-smi -q`" if case.wants_gpus else ", `dmesg | tail`"
    return f"read the log of {who} in the run directory{gpu_logs}; `preflight check --keep` keeps every log"


CHECK = RunCheck(
    name="trial-failed",
    promise="the collectives run with default settings",
    blame=Blame.HOST,
    reads=("trials",),
    blind_to="failures that need more ranks, nodes or hours than the trial had",
    judge=judge,
)
