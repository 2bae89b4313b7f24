"""The settings that the job would inherit fail where the defaults work."""

from __future__ import annotations

from collections.abc import Iterator

from preflight.judge.check import Case, RunCheck
from preflight.judge.run.trial_failed import describe, evidence
from preflight.judge.workaround import FAILED, default_trial, works
from preflight.model.finding import Blame, Finding, Severity
from preflight.model.trial import AS_IS


def judge(case: Case) -> Iterator[Finding]:
    """Yield a WARN where the inherited variables fail and their absence does not."""
    default = default_trial(case.trials)
    if default is None or not works(default):
        return
    for trial in case.trials:
        if trial.candidate == AS_IS and trial.outcome in FAILED:
            yield Finding(
                check=CHECK.name,
                blame=CHECK.blame,
                severity=Severity.WARN,
                subject=f"trial {trial.candidate}",
                problem=f"with the inherited variables: {describe(trial)}; without them all is well",
                fix="`source preflight.env`, which unsets them, and find who sets them: "
                "`grep -rnE '(NCCL|GLOO|TORCH)_' ~/.bashrc ~/.profile /etc/profile.d`",
                evidence=evidence(trial),
            )


CHECK = RunCheck(
    name="as-is-failed",
    promise="the inherited NCCL_*, GLOO_* and TORCH_* variables do no harm that the defaults don't",
    blame=Blame.CONFIGURATION,
    reads=("trials",),
    blind_to="which one of several inherited variables does it",
    judge=judge,
)
