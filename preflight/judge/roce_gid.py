"""A RoCE port without a version 2 GID can't be routed, and NCCL since 2.21 finds no GID to use on it."""

from __future__ import annotations

from collections.abc import Iterator

from preflight.errors import UnreadableFact
from preflight.judge.check import Case, NodeCheck
from preflight.judge.fabric import ports_of, verbs_nics
from preflight.model.facts import Gap, HcaPort, NodeFacts, known
from preflight.model.finding import Blame, Evidence, Finding, Severity
from preflight.model.hca import PortState

ETHERNET = "Ethernet"
V2 = "RoCE v2"


def judge(node: NodeFacts, case: Case) -> Iterator[Finding]:
    """Yield a WARN per active Ethernet port of an RDMA adapter without a RoCE v2 GID; EFA is neither."""
    for nic in verbs_nics(node):
        for port in ports_of(node, nic):
            if port.link_layer == ETHERNET and port.state is PortState.ACTIVE and not _has_v2(port):
                count = len(known(port.gids))
                yield Finding(
                    check=CHECK.name,
                    blame=Blame.CONFIGURATION,
                    severity=Severity.WARN,
                    subject=f"{node.host} {port.hca}:{port.port}",
                    problem="it has no RoCE v2 GID, so NCCL can't use it beyond its own Ethernet segment, if at all",
                    fix="give its interface an IP address and bring it up; `cma_roce_mode` or the driver's options "
                    "choose version 2",
                    evidence=(
                        Evidence("GIDs", str(count), f"/sys/class/infiniband/{port.hca}/ports/{port.port}/gids"),
                    ),
                )


def _has_v2(port: HcaPort) -> bool:
    gids = known(port.gids)
    if any(gid.type == V2 for gid in gids):
        return True
    unread = next((gid.type for gid in gids if isinstance(gid.type, Gap)), None)
    if unread is not None:
        raise UnreadableFact(f"the types of the GIDs of {port.hca}:{port.port}: {unread.reason}")
    return False


CHECK = NodeCheck(
    name="roce-gid",
    promise="every active RoCE port has a version 2 GID",
    blame=Blame.CONFIGURATION,
    reads=("nics", "hca_ports"),
    blind_to="whether the network routes it, and lossless settings (PFC, ECN)",
    judge=judge,
)
