"""Find the real cause of a failed test run of `preflight check`, from the output of the ranks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from preflight.explain.explain_logs import Log, explain
from preflight.model.explanation import Confidence, NamedCause
from preflight.model.trial import Outcome, RankEnd, TrialCause, TrialResult

FAILED = frozenset({Outcome.HANG, Outcome.CRASH, Outcome.INIT_ERROR})
MOST_LOGS = 8  # whose lines stay in the report: the ranks of a large job all say the same
# Causes that a trial shares with programs, as they read where only NCCL's and torch's own kernels run.
IN_A_TRIAL = {
    "cuda_illegal_address": "a kernel failed, and a trial runs only kernels of NCCL and torch, so the GPU, its "
    "memory or a copy from another GPU is at fault",
}
SUFFERED = frozenset({"timeout", "connection", "killed", "stuck"})
OWN, LIBRARY = "error", "log"  # what a rank raised, and what its library wrote


def with_cause(trial: TrialResult) -> TrialResult:
    """Return `trial` with the cause that the errors of its ranks and NCCL's logs prove.

    If no cause is proved, no cause is added.
    """
    if trial.outcome not in FAILED:
        return trial
    causes = explain(_logs(_that_tell(trial))).causes
    trial = replace(trial, ranks=_few_logs(trial))
    if not causes or causes[0].confidence is not Confidence.HIGH:
        return trial
    verdict = IN_A_TRIAL.get(causes[0].cause, causes[0].verdict.rstrip("."))
    reason = f"{verdict} [{causes[0].cause}]"
    proof, source = _proof(trial.ranks, causes[0])
    return replace(
        trial,
        problem=f"{trial.problem}. {reason}" if trial.problem else reason,
        causes=(TrialCause(causes[0].cause, verdict, proof, source),),
    )


def _that_tell(trial: TrialResult) -> tuple[RankEnd, ...]:
    """Return the ends of the ranks whose output may show the cause.

    If a signal ended a rank at fault, ranks that only lost the connection to this rank are left out.
    """
    if not any(end.rank in trial.culprits and end.ended == "signal" for end in trial.ranks):
        return trial.ranks
    return tuple(end for end in trial.ranks if end.ended not in SUFFERED)


def _logs(ends: tuple[RankEnd, ...]) -> Iterator[Log]:
    """Yield at most two logs per rank.

    The name of each log contains the rank, as the names of torchrun's logs do.
    """
    for end in ends:
        for kind, lines in ((OWN, end.detail.splitlines()), (LIBRARY, [line.text for line in end.log])):
            if lines:
                yield Log(f"{kind}.rank{end.rank}", ["\n".join(lines).encode("utf-8", "surrogateescape") + b"\n"])


def _few_logs(trial: TrialResult) -> tuple[RankEnd, ...]:
    """Return the ends of all ranks, but keep the logs of only a few ranks.

    The logs of the ranks at fault are preferred.
    """
    with_log = sorted((end.rank not in trial.culprits, end.rank) for end in trial.ranks if end.log)
    kept = {rank for _, rank in with_log[:MOST_LOGS]}
    return tuple(end if end.rank in kept or not end.log else replace(end, log=()) for end in trial.ranks)


def _proof(ends: tuple[RankEnd, ...], named: NamedCause) -> tuple[str, str]:
    """Return the first line that proves a cause, and its location."""
    if not named.evidence:
        return "", ""
    first = named.evidence[0]
    for end in ends:
        if first.source == f"{LIBRARY}.rank{end.rank}" and 0 < first.line <= len(end.log):
            line = end.log[first.line - 1]
            return line.text.strip(), f"{end.log_file}:{line.line}"
        if first.source == f"{OWN}.rank{end.rank}":
            return first.text, f"what rank {end.rank} raised"
    return first.text, first.source
