"""Where the kernel never overcommits, forking a worker from a large process fails although memory is free."""

from __future__ import annotations

from collections.abc import Iterator

from preflight.judge.check import Case, NodeCheck
from preflight.judge.local_ranks import local_ranks_of
from preflight.judge.wording import size_text
from preflight.model.facts import NodeFacts, Overcommit, known
from preflight.model.finding import Blame, Evidence, Finding, Severity

BYTES_PER_RANK = 16 << 30  # judgement: a rank of 4 GiB that forks some workers, each of which counts as much again


def judge(node: NodeFacts, case: Case) -> Iterator[Finding]:
    """Yield a WARN with vm.overcommit_memory=2 and little left for GPU ranks, an INFO with 2 otherwise."""
    system = known(node.system)
    if known(system.overcommit) is not Overcommit.NEVER:
        return
    left = known(system.commit_left_bytes)
    needed = local_ranks_of(node, case) * BYTES_PER_RANK
    yield Finding(
        check=CHECK.name,
        blame=Blame.HOST,
        severity=Severity.WARN if case.wants_gpus and left < needed else Severity.INFO,
        subject=f"{node.host} vm.overcommit_memory",
        problem=f"the kernel never overcommits, and {size_text(left)} may still be asked for: a data loader's worker "
        "counts as much as the rank that it is forked from",
        fix="`sysctl vm.overcommit_memory=0`, or fewer `num_workers`",
        evidence=(
            Evidence("vm.overcommit_memory", "2", "/proc/sys/vm/overcommit_memory"),
            Evidence("CommitLimit - Committed_AS", size_text(left), "/proc/meminfo"),
        ),
    )


CHECK = NodeCheck(
    name="overcommit",
    promise="a rank may fork its data loaders' workers",
    blame=Blame.HOST,
    reads=("system", "gpus"),
    blind_to="how large a rank is when it forks, and how many workers it forks",
    judge=judge,
)
