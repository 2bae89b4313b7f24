"""A small memory limit: the kernel kills a DataLoader worker, its rank waits for a batch, and all others in NCCL."""

from __future__ import annotations

from collections.abc import Iterator

from preflight.judge.check import Case, NodeCheck
from preflight.judge.hardware import is_contained, owner
from preflight.judge.local_ranks import local_ranks_of
from preflight.judge.wording import size_text
from preflight.model.facts import NodeFacts, known
from preflight.model.finding import Blame, Evidence, Finding, Severity

# Judgement: a rank's own process with torch and a CUDA context takes 2 to 3 GiB, four workers some hundred MiB each.
BYTES_PER_RANK = 4 << 30


def judge(node: NodeFacts, case: Case) -> Iterator[Finding]:
    """Yield a WARN on GPU nodes, an INFO elsewhere, where a cgroup leaves each rank too little."""
    limit = known(known(node.system).cgroup_memory_limit_bytes)
    ranks = local_ranks_of(node, case)
    if not isinstance(limit, int) or not ranks or limit >= ranks * BYTES_PER_RANK:
        return
    yield Finding(
        check=CHECK.name,
        blame=owner(node),
        severity=Severity.WARN if case.wants_gpus else Severity.INFO,
        subject=f"{node.host} cgroup memory limit",
        problem=f"{size_text(limit)} for {ranks} rank{'s' * (ranks > 1)} with their data loaders: the kernel kills "
        "what goes beyond, and the other ranks then wait in a collective",
        fix=_fix(node, ranks * BYTES_PER_RANK),
        evidence=(
            Evidence("limit", size_text(limit), "cgroup memory.max"),
            Evidence("per rank", size_text(limit // ranks), f"judged by {size_text(BYTES_PER_RANK)}"),
        ),
    )


def _fix(node: NodeFacts, need_bytes: int) -> str:
    gib = need_bytes >> 30
    if is_contained(node):
        return (
            f"docker/podman: `--memory={gib}g`; Kubernetes: `resources.limits.memory: {gib}Gi`; "
            "or fewer `num_workers`; `memory.events` counts oom_kill"
        )
    return f"ask the scheduler for {gib} GiB (Slurm: `--mem={gib}G`), or fewer `num_workers`; `dmesg | grep oom-kill`"


CHECK = NodeCheck(
    name="dataloader-memory",
    promise="the cgroup leaves every rank and its data loaders some memory",
    blame=Blame.HOST,
    reads=("system", "gpus"),
    blind_to="how many workers a job has, and how large its samples are",
    judge=judge,
)
