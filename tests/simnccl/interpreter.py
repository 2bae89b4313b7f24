"""What SIMNCCL's rules would do to a trial, without running one: the stages in order, the first fault that applies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from preflight.model.trial import Candidate, Outcome, RankEnd, TrialResult
from tests.node_facts import trial
from tests.simnccl.simnccl import STAGES, Rule

ENDINGS = {"hang": Outcome.HANG, "stop": Outcome.HANG, "crash": Outcome.CRASH, "corrupt": Outcome.WRONG_DATA}


def interpret(rules: Sequence[Rule], candidate: Candidate, world_size: int = 2) -> TrialResult:
    """Return the result of a candidate's trial on a machine with these faults."""
    environ = dict(candidate.env)
    for stage in STAGES:
        for rank in range(world_size):
            for rule in rules:
                if rule.action in ENDINGS and rule.applies(rank, stage, environ):
                    return _failed(rule, candidate, rank, stage, environ, world_size)
    return trial(candidate.name, Outcome.OK, world_size, env=candidate.env, reason=candidate.reason)


def _failed(
    rule: Rule, candidate: Candidate, rank: int, stage: str, environ: Mapping[str, str], world_size: int
) -> TrialResult:
    detail = "died by SIGSEGV" if rule.action == "crash" else ""
    ends = tuple(
        RankEnd(each, "signal" if each == rank and detail else "killed", stage, detail if each == rank else "")
        for each in range(world_size)
    )
    return trial(
        candidate.name, ENDINGS[rule.action], world_size, env=candidate.env, reason=candidate.reason, ranks=ends,
        stages=tuple((each, stage) for each in range(world_size)), culprits=(),
        problem=f"{rule.action} in stage {stage}",
    )  # fmt: skip
