from __future__ import annotations

from collections import defaultdict

from preflight.errors import NotApplicable
from preflight.judge.check import Case, Findings, node_check
from preflight.judge.pci_fabric import ports_of, verbs_nics
from preflight.model.facts import HcaPort, NodeFacts, known, known_or
from preflight.model.finding import Blame, Evidence, Severity, Unseen
from preflight.model.hca import ETHERNET, PortState

# Its driver reads the other end's offer from a field with an older table of speeds (mlx5 en_ethtool.c).
MISREADS_ITS_PEER = "mlx5_core"
LINK = "ethtool"  # where the speeds come from: the kernel's answer, as ethtool prints it
FIX = (
    "check the cable, the transceiver and the switch port. `ethtool INTERFACE` shows what both ends offer. `mlxlink "
    "-d DEVICE` (as root) shows what the cable can carry"
)


@node_check("roce-port-speed", blame=Blame.FABRIC, unseen=Unseen.NOTHING, reads=("nics", "hca_ports"))
def roce_port_speed(node: NodeFacts, case: Case) -> Findings:
    """An active RoCE port runs at the fastest speed that it and its peer offer.

    Yields a WARN for each active RoCE port that is slower than both ends of its cable offer. If the peer's offer is
    lower, missing or not reliable, yields an INFO for a port that can be faster.

    Can't see: InfiniBand ports, whose speeds only their firmware knows (`mlxlink` as root); a cable that can carry less
    than both ports; bonds.
    """
    # A damaged cable or transceiver can cause a low speed. The peer's offer is not reliable if the driver is mlx5.
    found = [(port, known_or(nic.driver, "")) for nic in verbs_nics(node) for port in ports_of(node, nic)]
    active = [
        (port, driver)
        for port, driver in found
        if known(port.link_layer) == ETHERNET and known(port.state) is PortState.ACTIVE
    ]
    if not active:
        raise NotApplicable("no RoCE port is active")
    below = defaultdict[str, list[HcaPort]](list)
    for port, driver in active:
        for speeds in known_or(port.speeds, ()):
            rate, own, both = speeds.now_gbit_s, speeds.own_gbit_s, known_or(speeds.both_gbit_s, 0)
            both = 0 if driver == MISREADS_ITS_PEER else both
            if rate < both:
                yield roce_port_speed.finding(
                    Severity.WARN,
                    f"{node.host} {port.hca}:{port.port}",
                    f"the port runs at {rate:g} Gbit/s, but both ends of its cable offer {both} Gbit/s",
                    FIX,
                    Evidence("speed", f"{rate:g} Gbit/s", LINK),
                    Evidence("both ends offer", f"{both} Gbit/s", LINK),
                )
            elif rate < own:
                offer = f"the two ends of the cable offer at most {both}" if both else "the peer's offer is not known"
                below[f"{rate:g} Gbit/s but supports {own} Gbit/s; {offer}"].append(port)
    for text, slower in below.items():
        yield roce_port_speed.finding(
            Severity.INFO,
            f"{node.host} {', '.join(f'{port.hca}:{port.port}' for port in slower)}",
            f"each port runs at {text}",
            f"do nothing if the switch is meant for this speed; otherwise {FIX}",
            Evidence("speed", text, LINK),
        )
    for port, _ in active:
        known(port.speeds)
