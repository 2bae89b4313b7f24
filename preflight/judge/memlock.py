"""InfiniBand and RoCE must lock the memory that they send from; the stock limit is far too small for that."""

from __future__ import annotations

from collections.abc import Iterator

from preflight.judge.check import Case, NodeCheck
from preflight.judge.fabric import carries_traffic
from preflight.judge.hardware import is_contained, owner
from preflight.judge.symptoms import MEMLOCK_TEXTS, seen
from preflight.judge.wording import size_text
from preflight.judge.workaround import proven_severity
from preflight.model.facts import Gap, Limit, Netif, NetifKind, Nic, NodeFacts, known
from preflight.model.finding import Blame, Evidence, Finding, Severity
from preflight.model.hca import NicKind

LOW_BYTES = 1 << 30  # NCCL registers some hundreds of MiB per rank with many peers; unlimited is what NVIDIA asks for


def judge(node: NodeFacts, case: Case) -> Iterator[Finding]:
    """Yield a FAIL where a trial failed from it, a WARN beside an RDMA adapter, an INFO on other GPU nodes."""
    memlock = known(node.limits).memlock_bytes
    proofs = seen(case, MEMLOCK_TEXTS)
    if isinstance(memlock, Limit) or memlock >= LOW_BYTES or not (case.wants_gpus or proofs):
        return
    adapters = (*(netif.name for netif in _ipoib(node)), *(nic.name for nic in _rdma(node)))
    if proofs:
        severity, told = proven_severity(case), "a trial failed because memory could not be locked for RDMA"
    elif adapters:
        severity, told = Severity.WARN, f"RDMA over {adapters[0]} needs more locked memory than is allowed"
    else:
        severity, told = Severity.INFO, "too little for InfiniBand or RoCE; sockets, NVLink and /dev/shm don't need it"
    yield Finding(
        check=CHECK.name,
        blame=owner(node),
        severity=severity,
        subject=f"{node.host} RLIMIT_MEMLOCK",
        problem=f"{size_text(memlock)}: {told}",
        fix=_fix(node),
        evidence=(
            Evidence("RLIMIT_MEMLOCK", size_text(memlock), "getrlimit"),
            *(Evidence("RDMA adapter or IPoIB interface", name, "/sys/class") for name in adapters),
            *(proof.evidence() for proof in proofs),
        ),
    )


def _ipoib(node: NodeFacts) -> tuple[Netif, ...]:
    if isinstance(node.netifs, Gap):
        return ()
    return tuple(netif for netif in node.netifs if netif.kind is NetifKind.IPOIB and netif.is_up)


def _rdma(node: NodeFacts) -> tuple[Nic, ...]:
    """Return the adapters that NCCL would use: EFA too, which registers memory as the others do."""
    if isinstance(node.nics, Gap) or isinstance(node.hca_ports, Gap):
        return ()
    return tuple(nic for nic in node.nics if nic.kind is not NicKind.OTHER and carries_traffic(node, nic.name))


def _fix(node: NodeFacts) -> str:
    if is_contained(node):
        return "docker/podman: `--ulimit memlock=-1`; Kubernetes: raise it in the container runtime's service"
    return (
        "`echo '* - memlock unlimited' > /etc/security/limits.d/90-rdma.conf` and log in again; "
        "for Slurm `LimitMEMLOCK=infinity` in slurmd's unit"
    )


CHECK = NodeCheck(
    name="memlock",
    promise="the locked-memory limit does not stand in RDMA's way",
    blame=Blame.HOST,
    reads=("limits", "netifs", "nics", "hca_ports", "system"),
    blind_to="what a job's own service manager sets; adapters that /sys does not show",
    judge=judge,
)
