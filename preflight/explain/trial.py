"""What really failed a trial of `preflight check`, read from what its ranks left behind."""

from __future__ import annotations

from dataclasses import replace

from preflight.explain.run import explain_text
from preflight.model.explanation import Confidence
from preflight.model.trial import Outcome, TrialResult

FAILED = frozenset({Outcome.HANG, Outcome.CRASH, Outcome.INIT_ERROR})


def with_cause(trial: TrialResult) -> TrialResult:
    """Return the trial with the cause in its problem, where its ranks' own words prove one; else as it is."""
    if trial.outcome not in FAILED:
        return trial
    lines = (f"[rank{end.rank}]: {line}" for end in trial.ranks for line in end.detail.splitlines())
    causes = explain_text("\n".join(lines), f"trial {trial.candidate}").causes
    if not causes or causes[0].confidence is not Confidence.HIGH:
        return trial
    told = f"{causes[0].verdict.rstrip('.')} [{causes[0].cause}]"
    return replace(trial, problem=f"{trial.problem}: {told}" if trial.problem else told)
