"""A container that sees the adapters in /sys but was not given their device files falls back to sockets, silently."""

from __future__ import annotations

from collections.abc import Iterator

from preflight.judge.check import Case, NodeCheck
from preflight.judge.hardware import is_contained, owner
from preflight.model.facts import NodeFacts, known
from preflight.model.finding import Blame, Evidence, Finding, Severity


def judge(node: NodeFacts, case: Case) -> Iterator[Finding]:
    """Yield a WARN where device files of adapters are missing and GPUs are to be used."""
    if not case.wants_gpus:
        return
    rdma = known(node.rdma)
    missing = sorted({*known(rdma.uverbs_expected)} - {*rdma.uverbs})
    if not missing:
        return
    contained = is_contained(node)
    yield Finding(
        check=CHECK.name,
        blame=owner(node),
        severity=Severity.WARN,
        subject=f"{node.host} /dev/infiniband",
        problem=f"{len(missing)} of {len(known(rdma.uverbs_expected))} device files of RDMA adapters are missing "
        f"({', '.join(missing)}): NCCL can't open those adapters and takes sockets",
        fix="docker: `--device /dev/infiniband` (and `--ulimit memlock=-1`); Kubernetes: the RDMA device plugin"
        if contained
        else "load `ib_uverbs` and look at udev's rules: `ls /dev/infiniband`",
        evidence=(
            Evidence("device files", ", ".join(rdma.uverbs) or "none", "/dev/infiniband"),
            Evidence("adapters", ", ".join(known(rdma.uverbs_expected)), "/sys/class/infiniband_verbs"),
        ),
    )


CHECK = NodeCheck(
    name="rdma-devices",
    promise="every RDMA adapter that the kernel shows can be opened",
    blame=Blame.CONTAINER,
    reads=("rdma", "system"),
    blind_to="permissions on the device files",
    judge=judge,
)
