"""With an unlimited stack glibc gives new threads 2 MB only, and NCCL before 2.28 overran that."""

from __future__ import annotations

from collections.abc import Iterator

from preflight.judge.check import Case, NodeCheck
from preflight.judge.hardware import owner
from preflight.judge.versions import version_tuple
from preflight.model.facts import Gap, Limit, NodeFacts, known
from preflight.model.finding import Blame, Evidence, Finding, Severity

CURED_IN = (2, 28)


def judge(node: NodeFacts, case: Case) -> Iterator[Finding]:
    """Yield a WARN with an NCCL that is known to be older than 2.28, an INFO with an unknown one."""
    if not isinstance(known(node.limits).stack_bytes, Limit) or not case.wants_gpus:
        return
    nccl = _nccl(node)
    if not isinstance(nccl, Gap) and version_tuple(nccl) >= CURED_IN:
        return
    yield Finding(
        check=CHECK.name,
        blame=owner(node),
        severity=Severity.INFO if isinstance(nccl, Gap) else Severity.WARN,
        subject=f"{node.host} RLIMIT_STACK",
        problem="the stack is unlimited, so glibc gives NCCL's threads 2 MB only; "
        "NCCL before 2.28 may crash when it creates a communicator",
        fix="`ulimit -s 8192` before the job, or an NCCL of 2.28 or newer",
        evidence=(
            Evidence("RLIMIT_STACK", "unlimited", "getrlimit"),
            Evidence("NCCL", f"unknown: {nccl.reason}" if isinstance(nccl, Gap) else nccl, "the wheel beside torch"),
        ),
    )


def _nccl(node: NodeFacts) -> str | Gap:
    if isinstance(node.software, Gap):
        return node.software
    return node.software.torch if isinstance(node.software.torch, Gap) else node.software.torch.nccl


CHECK = NodeCheck(
    name="stack-unlimited",
    promise="NCCL's threads have the stack that they need",
    blame=Blame.HOST,
    reads=("limits", "software", "system"),
    blind_to="an NCCL that is linked into torch or loaded from LD_LIBRARY_PATH",
    judge=judge,
)
