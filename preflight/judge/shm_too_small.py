"""/dev/shm has less room than NCCL's shared segments may take."""

from __future__ import annotations

import math
from collections.abc import Iterator

from preflight.judge.check import Case, NodeCheck
from preflight.judge.hardware import is_contained, owner
from preflight.judge.local_ranks import local_ranks_of
from preflight.judge.symptoms import SHM_HINTS, SHM_TEXTS, seen
from preflight.judge.wording import size_text
from preflight.judge.workaround import proven_severity
from preflight.model.facts import NodeFacts, ShmFacts, known
from preflight.model.finding import Blame, Evidence, Finding, Severity

# One connection's buffers: 4 MiB for Simple (NCCL_BUFFSIZE's default) and about as much for LL and LL128 together.
BYTES_PER_CONNECTION = 9 << 20
CHANNELS = 4  # what NCCL opens between GPUs without NVLink; more only where SHM is not used


def needed_bytes(local_ranks: int) -> int:
    """Return what NCCL may put into /dev/shm when all local ranks talk through it.

    Each rank sends to its next neighbour in the ring and, from 3 ranks on, to the previous one in the tree: those are
    all the connections of all_reduce and all_gather within a node, each opened once per channel.
    """
    if local_ranks < 2:
        return 0
    return local_ranks * min(local_ranks - 1, 2) * CHANNELS * BYTES_PER_CONNECTION


def judge(node: NodeFacts, case: Case) -> Iterator[Finding]:
    """Yield a WARN where there is too little room, a FAIL where a trial failed from it; INFO at most without NCCL."""
    shm = known(node.shm)
    local_ranks = local_ranks_of(node, case)
    is_small = shm.free_bytes < needed_bytes(local_ranks)
    proofs = seen(case, SHM_TEXTS + (SHM_HINTS if is_small else ()))
    if not is_small and not proofs:
        return
    severity = proven_severity(case) if proofs else Severity.WARN
    yield Finding(
        check=CHECK.name,
        blame=owner(node),
        severity=severity if case.wants_gpus else Severity.INFO,
        subject=f"{node.host} /dev/shm",
        problem=_problem(case, shm, local_ranks, failed=bool(proofs)),
        fix=_fix(node, needed_bytes(local_ranks)),
        evidence=(
            Evidence("size", size_text(shm.size_bytes), "statvfs /dev/shm"),
            Evidence("free", size_text(shm.free_bytes), "statvfs /dev/shm"),
            Evidence("needed", size_text(needed_bytes(local_ranks)), f"{local_ranks} local ranks, {CHANNELS} channels"),
            *(proof.evidence() for proof in proofs),
        ),
    )


def _problem(case: Case, shm: ShmFacts, local_ranks: int, *, failed: bool) -> str:
    if failed:
        return f"a trial failed for want of room: {size_text(shm.free_bytes)} of {size_text(shm.size_bytes)} are free"
    need = f"NCCL may need {size_text(needed_bytes(local_ranks))} for {local_ranks} local ranks"
    idle = "" if case.wants_gpus else "; gloo needs none of it, data loaders and a later NCCL job do"
    return f"{size_text(shm.free_bytes)} of {size_text(shm.size_bytes)} are free, {need}{idle}"


def _fix(node: NodeFacts, need_bytes: int) -> str:
    gib = max(1, math.ceil(need_bytes / (1 << 30)))
    if is_contained(node):
        return (
            f"docker/podman: `--shm-size={gib}g` (or `--ipc=host`); Kubernetes: mount an emptyDir with "
            f"`medium: Memory` and `sizeLimit: {gib}Gi` at /dev/shm"
        )
    return (
        f"`mount -o remount,size={gib}g /dev/shm` as root, and the same size in /etc/fstab; see also `ls -l /dev/shm`"
    )


CHECK = NodeCheck(
    name="shm-too-small",
    promise="/dev/shm has room for NCCL's segments of all local ranks",
    blame=Blame.HOST,
    reads=("shm", "system", "gpus"),
    blind_to="that NCCL needs little of it over NVLink, and none with NCCL_CUMEM_HOST_ENABLE=1 (2.24, driver 560)",
    judge=judge,
)
