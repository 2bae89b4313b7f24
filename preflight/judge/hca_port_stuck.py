"""An InfiniBand port whose link is up but that no subnet manager has configured is unusable, and looks usable."""

from __future__ import annotations

from collections.abc import Iterator

from preflight.judge.check import Case, NodeCheck
from preflight.model.facts import Gap, NodeFacts, known
from preflight.model.finding import Blame, Evidence, Finding, Severity
from preflight.model.hca import PhysState, PortState

STUCK = frozenset({PortState.INIT, PortState.ARMED})
INFINIBAND = "InfiniBand"  # a RoCE or EFA port has no subnet manager


def judge(node: NodeFacts, case: Case) -> Iterator[Finding]:
    """Yield a FAIL per InfiniBand port stuck in INIT or ARMED with its link up."""
    for port in known(node.hca_ports):
        if port.link_layer != INFINIBAND or port.phys_state is not PhysState.LINK_UP or isinstance(port.state, Gap):
            continue
        if port.state in STUCK:
            sm_lid = "none" if isinstance(port.sm_lid, Gap) or port.sm_lid == 0 else str(port.sm_lid)
            yield Finding(
                check=CHECK.name,
                blame=Blame.FABRIC,
                severity=Severity.FAIL,
                subject=f"{node.host} {port.hca}:{port.port}",
                problem=f"the link is up, but the port is {port.state.value}, not ACTIVE",
                fix="no subnet manager configured it: start OpenSM or UFM, or repair the way to it",
                evidence=(
                    Evidence("port state", port.state.value, f"/sys/class/infiniband/{port.hca}/ports/{port.port}"),
                    Evidence("subnet manager's LID", sm_lid, "sm_lid"),
                ),
            )


CHECK = NodeCheck(
    name="hca-port-stuck",
    promise="every InfiniBand port with a link is ACTIVE",
    blame=Blame.FABRIC,
    reads=("hca_ports",),
    blind_to="whether an ACTIVE port reaches its peers",
    judge=judge,
)
