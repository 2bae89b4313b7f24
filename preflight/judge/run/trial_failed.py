"""The default settings hang, crash or do not start."""

from __future__ import annotations

from collections.abc import Iterator

from preflight.judge.check import Case, RunCheck
from preflight.judge.symptoms import blame_by_text
from preflight.judge.wording import first_line, ranks_text
from preflight.judge.workaround import cures, default_trial, hidden_faults
from preflight.model.finding import Blame, Evidence, Finding, Severity
from preflight.model.trial import REPEATED, UNDER_LOAD, Outcome, RankEnd, TrialResult

WORDS = {Outcome.HANG: "hung", Outcome.CRASH: "crashed", Outcome.INIT_ERROR: "could not start"}
WAITING_OR_FINE = frozenset({"done", "killed"})
ONLY_SUFFERED = {"timeout": "waited in vain", "connection": "lost a peer"}
MOST_ENDINGS_SHOWN = 8


def judge(case: Case) -> Iterator[Finding]:
    """Yield one finding where the default trial failed: FAIL, or WARN where another candidate works; and under load."""
    yield from _under_load(case)
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
        evidence=(*evidence(default), *(_working(trial) for trial in working)),
    )


def _under_load(case: Case) -> Iterator[Finding]:
    """Yield a FAIL where the default worked at first and failed when it was repeated: no setting cures that."""
    repeats = [each for each in case.trials if each.candidate.startswith(REPEATED)]
    failed = [each for each in repeats if each.outcome in WORDS]
    if failed:
        how = " under load" if failed[0].candidate.startswith(UNDER_LOAD) else " when repeated"
        yield Finding(
            check=CHECK.name,
            blame=blame_by_text(case, failed[0]) or Blame.HOST,
            severity=Severity.FAIL,
            subject=f"trial {failed[0].candidate}",
            problem=f"the default works at first and fails{how} ({len(failed)} of {len(repeats)} times): "
            f"{describe(failed[0])}",
            fix="`dmesg | grep -iE 'xid|nvrm'`, heat and power under load; `preflight check --profile burn --keep` "
            "keeps every log",
            evidence=evidence(failed[0]),
        )


def describe(trial: TrialResult) -> str:
    """Return the failure in one line that names ranks and stage."""
    stages = {stage for rank, stage in trial.stages if not trial.culprits or rank in trial.culprits}
    told = f"{WORDS.get(trial.outcome, trial.outcome.value)}: {ranks_text(trial.culprits)}"
    return trial.problem or f"{told} in stage {', '.join(sorted(stages)) or 'unknown'}"


def evidence(trial: TrialResult) -> tuple[Evidence, ...]:
    """Return the outcome, the line that proves its cause, and how each rank that was not merely told to stop ended."""
    source = f"trial {trial.candidate}"
    alike: dict[str, list[RankEnd]] = {}
    for end in trial.ranks:
        if end.ended not in WAITING_OR_FINE:
            alike.setdefault(_how_it_ended(end), []).append(end)
    shown = tuple(Evidence(ranks_text(end.rank for end in ends), told, source) for told, ends in alike.items())
    proved = (Evidence(f"cause {each.cause}", each.proof, each.source) for each in trial.causes)
    return (Evidence("outcome", trial.outcome.value, source), *proved, *shown[:MOST_ENDINGS_SHOWN])


def _how_it_ended(end: RankEnd) -> str:
    """Return how a rank ended; of one that only waited or lost its peer its own words tell nothing more."""
    if end.ended in ONLY_SUFFERED:
        return f"{ONLY_SUFFERED[end.ended]} in {end.stage}"
    if end.ended == "stuck":
        return f"stuck in {end.stage}, silent until the stage's limit"
    return f"{end.ended} in {end.stage}: {first_line(end.detail) or 'no message'}"


def _working(trial: TrialResult) -> Evidence:
    settings = " ".join(f"{name}={value}" for name, value in trial.env)
    return Evidence("works", settings or trial.candidate, f"trial {trial.candidate}" if settings else "its own trial")


def _blame(case: Case, default: TrialResult) -> Blame:
    told = blame_by_text(case, default)
    if told is not None:
        return told
    hidden = hidden_faults(case)
    if hidden:
        return hidden[0].blame
    # A cure that switches no transport off (an interface's name, a neutralised nccl.conf) shows a sound machine.
    # What works on each node alone and not between them accuses no node: who it is takes more trials to tell.
    return Blame.CONFIGURATION if cures(case) or len(case.nodes) > 1 else Blame.HOST


def _fix(case: Case, default: TrialResult) -> str:
    hidden = hidden_faults(case)
    if hidden:
        return "`source preflight.env` before the job meanwhile; " + "; ".join(each.repair for each in hidden)
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
