"""A process that SIGKILL does not end is stuck in the kernel, nearly always in the driver of its GPU."""

from __future__ import annotations

from collections.abc import Iterator

from preflight.judge.check import Case, RunCheck
from preflight.model.finding import Blame, Evidence, Finding, Severity


def judge(case: Case) -> Iterator[Finding]:
    """Yield a FAIL per rank whose process outlived SIGKILL."""
    for trial in case.trials:
        for end in trial.ranks:
            if end.ended == "unkillable":
                yield Finding(
                    check=CHECK.name,
                    blame=Blame.GPU if case.wants_gpus else Blame.HOST,
                    severity=Severity.FAIL,
                    subject=f"trial {trial.candidate}, rank {end.rank}",
                    problem=f"rank {end.rank} was still there 5 s after SIGKILL, in stage {end.stage}",
                    fix="`ps -eo pid,stat,wchan:32,cmd | grep ' D'` and `dmesg | grep -iE 'xid|hung'`; drain the node "
                    "and reboot it: a process in D state keeps its GPU until then",
                    evidence=(Evidence("end", f"{end.ended} {end.detail}".strip(), f"trial {trial.candidate}"),),
                )


CHECK = RunCheck(
    name="gpu-unkillable",
    promise="every process of every trial could be ended",
    blame=Blame.GPU,
    reads=("trials",),
    blind_to="processes that others started",
    judge=judge,
)
