"""Ports of one adapter model that differ point at a bad cable, a forgotten port or an adapter that was missed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from preflight.judge.check import Case, NodeCheck
from preflight.judge.fabric import ports_of, verbs_nics
from preflight.model.facts import HcaPort, NodeFacts
from preflight.model.finding import Blame, Evidence, Finding, Severity
from preflight.model.hca import PortState


def judge(node: NodeFacts, case: Case) -> Iterator[Finding]:
    """Yield a WARN per slower active port among ports of one model and link layer, an INFO per port that is DOWN."""
    groups: dict[tuple[str, str], list[HcaPort]] = {}
    for nic in verbs_nics(node):
        for port in ports_of(node, nic):
            if isinstance(nic.device, str) and isinstance(port.link_layer, str):
                groups.setdefault((nic.device, port.link_layer), []).append(port)
    for (device, _), ports in sorted(groups.items()):
        active = [port for port in ports if port.state is PortState.ACTIVE]
        fastest = max((port.rate_gbit_s for port in active if isinstance(port.rate_gbit_s, float)), default=0.0)
        for port in active:
            if isinstance(port.rate_gbit_s, float) and port.rate_gbit_s < fastest:
                yield _slower(node, device, port, fastest)
        down = [port for port in ports if port.state is PortState.DOWN]
        if active and down:
            yield _down(node, device, down)


def _slower(node: NodeFacts, device: str, port: HcaPort, fastest: float) -> Finding:
    seen = f"{port.rate_gbit_s:g} Gbit/s"
    return Finding(
        check=CHECK.name,
        blame=Blame.FABRIC,
        severity=Severity.WARN,
        subject=f"{node.host} {port.hca}:{port.port}",
        problem=f"it runs at {seen}, other ports of its model ({device}) at {fastest:g}",
        fix="look at the cable, the transceiver and the switch port; `mlxlink -d DEVICE` tells what was negotiated",
        evidence=(Evidence("rate", seen, f"/sys/class/infiniband/{port.hca}/ports/{port.port}/rate"),),
    )


def _down(node: NodeFacts, device: str, ports: Sequence[HcaPort]) -> Finding:
    named = ", ".join(f"{port.hca}:{port.port}" for port in ports)
    return Finding(
        check=CHECK.name,
        blame=Blame.FABRIC,
        severity=Severity.INFO,
        subject=f"{node.host} {named}",
        problem=f"down, while other ports of the model ({device}) are active; NCCL leaves it out",
        fix="nothing where no cable is meant to be plugged in; else look at cable and switch port",
        evidence=tuple(Evidence("port state", "DOWN", f"/sys/class/infiniband/{each.hca}") for each in ports),
    )


CHECK = NodeCheck(
    name="hca-siblings",
    promise="active ports of one adapter model run at the same rate",
    blame=Blame.FABRIC,
    reads=("nics", "hca_ports"),
    blind_to="ports that are all slow alike; adapters whose PCI ids can't be read",
    judge=judge,
)
