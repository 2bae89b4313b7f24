"""DataLoader workers hand batches over through /dev/shm; where it is small they die of a bus error, and NCCL waits."""

from __future__ import annotations

from collections.abc import Iterator

from preflight.judge.check import Case, NodeCheck
from preflight.judge.hardware import is_contained, owner
from preflight.judge.local_ranks import local_ranks_of
from preflight.judge.shm_too_small import needed_bytes
from preflight.judge.wording import size_text
from preflight.model.facts import NodeFacts, known
from preflight.model.finding import Blame, Evidence, Finding, Severity

# Judgement: four workers with two batches of 16 MiB each (PyTorch's prefetch_factor is 2) for a rank.
BYTES_PER_RANK = 128 << 20


def judge(node: NodeFacts, case: Case) -> Iterator[Finding]:
    """Yield a WARN on GPU nodes, an INFO elsewhere; nothing where shm-too-small says already that there is no room."""
    shm = known(node.shm)
    ranks = local_ranks_of(node, case)
    if shm.free_bytes < needed_bytes(ranks) or shm.free_bytes >= ranks * BYTES_PER_RANK:
        return
    yield Finding(
        check=CHECK.name,
        blame=owner(node),
        severity=Severity.WARN if case.wants_gpus else Severity.INFO,
        subject=f"{node.host} /dev/shm",
        problem=f"{size_text(shm.free_bytes)} of {size_text(shm.size_bytes)} are free for the batches of "
        f"{ranks} rank{'s' * (ranks > 1)}: a DataLoader worker that finds no room dies of a bus error",
        fix=_fix(node, ranks),
        evidence=(
            Evidence("free", size_text(shm.free_bytes), "statvfs /dev/shm"),
            Evidence("judged by", size_text(ranks * BYTES_PER_RANK), f"{size_text(BYTES_PER_RANK)} a rank"),
        ),
    )


def _fix(node: NodeFacts, ranks: int) -> str:
    gib = max(1, -(-ranks * BYTES_PER_RANK >> 30))
    if is_contained(node):
        return (
            f"docker/podman: `--shm-size={gib}g` (or `--ipc=host`); Kubernetes: an emptyDir with `medium: Memory` at "
            "/dev/shm; or `num_workers=0`"
        )
    return f"`mount -o remount,size={gib}g /dev/shm` as root, or `num_workers=0`"


CHECK = NodeCheck(
    name="dataloader-shm",
    promise="/dev/shm has room for the batches of data loaders",
    blame=Blame.HOST,
    reads=("shm", "system", "gpus"),
    blind_to="how many workers a job has, how large its batches are, and other sharing strategies",
    judge=judge,
)
