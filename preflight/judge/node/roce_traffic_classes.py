from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from preflight.errors import NotApplicable
from preflight.judge.check import Case, Findings, node_check
from preflight.judge.pci_fabric import ports_of, verbs_nics
from preflight.model.bound import JUDGMENT, Bound
from preflight.model.facts import Gap, HcaPort, NodeFacts, inherited_value, known, known_or
from preflight.model.finding import Blame, Evidence, Severity, Unseen
from preflight.model.hca import ETHERNET, NOT_FORCED, PortState
from preflight.model.parsing import parsed_integer

IB_TC = "NCCL_IB_TC"


ALIKE = Bound(
    3, "ports of the same model and rate that are alike",
    "one port that differs from three or more was probably not configured; two ports that differ "
    "may belong to the storage network",
    JUDGMENT,
    "too low: a port for storage causes a warning; too high: a port that was not configured is only noted",
)  # fmt: skip


@node_check(
    "roce-traffic-classes",
    blame=Blame.CONFIGURATION,
    unseen=Unseen.NOTHING,
    reads=("nics", "hca_ports", "environment", "nccl_conf"),
    bounds=(ALIKE,),
)
def roce_traffic_classes(node: NodeFacts, case: Case) -> Findings:
    """Active RoCE ports of one model treat traffic classes alike, and flow control includes NCCL's traffic.

    Yields an INFO if active ports of one model and rate differ, or a WARN if one port differs from several. Yields an
    INFO if flow control (PFC) is on, but not for the priority of NCCL's traffic.

    Can't see: the switches' configuration, whether the fabric is meant to work without PFC, which ports a storage
    network uses, and the priority of ports that do not look at DSCPs.
    """
    # A WARN needs at least three ports that agree with each other. With priority flow control (PFC), a full receiver
    # pauses one priority, and the packets of other priorities are lost. `NCCL_IB_TC` sets the priority of NCCL's
    # traffic.
    alike = defaultdict[tuple[str, str], list[HcaPort]](list)
    for nic in verbs_nics(node):
        for port in ports_of(node, nic):
            if port.link_layer == ETHERNET and port.state is PortState.ACTIVE:
                alike[known_or(nic.device, ""), f"{port.rate_gbit_s}"].append(port)
    if not alike:
        raise NotApplicable("no RoCE port is active")
    for ports in alike.values():
        yield from _unlike(node, ports)
    for ports in alike.values():
        yield from _without_flow_control(node, ports)
    for port in (port for ports in alike.values() for port in ports):
        known(port.traffic_classes)


def _unlike(node: NodeFacts, ports: Sequence[HcaPort]) -> Findings:
    read = [(f"{port.hca}:{port.port}", classes) for port in ports for classes in known_or(port.traffic_classes, ())]
    if any(isinstance(classes.ecn_priorities, Gap) for _, classes in read):  # unread: not compared
        read = [(name, replace(classes, ecn_priorities=Gap("not compared"))) for name, classes in read]
    by_text = defaultdict[str, list[str]](list)
    for name, classes in read:
        by_text[classes.text].append(name)
    if len(by_text) < 2:
        return
    common = max(by_text, key=lambda text: len(by_text[text]))
    others = [name for text, names in by_text.items() if text != common for name in names]
    is_forgotten = len(others) == 1 and len(by_text[common]) >= ALIKE.value
    yield roce_traffic_classes.finding(
        Severity.WARN if is_forgotten else Severity.INFO,
        f"{node.host} {', '.join(others)}",
        f"the traffic classes differ from those of {', '.join(by_text[common])}, so under load one port loses packets "
        f"that another port holds back",
        "configure all ports of one network alike (`mlnx_qos -i INTERFACE` shows trust, PFC and the priority of each "
        "DSCP)",
        *(Evidence(", ".join(names), text, "the kernel's DCB") for text, names in by_text.items()),
    )


def _without_flow_control(node: NodeFacts, ports: Sequence[HcaPort]) -> Findings:
    """Yield a problem for ports that give NCCL's traffic a priority without flow control (PFC).

    Other priorities of these ports have flow control.
    """
    chosen = _chosen(node)
    found = defaultdict[str, list[str]](list)
    for port, classes in [(each, classes) for each in ports for classes in known_or(each.traffic_classes, ())]:
        if not classes.pfc_priorities or isinstance(classes.forced, Gap):
            continue
        traffic_class = chosen if classes.forced == NOT_FORCED else classes.forced
        priority = None if traffic_class is None else classes.priority_of(traffic_class)
        if priority is not None and priority not in classes.pfc_priorities:
            on_for = ", ".join(map(str, classes.pfc_priorities))
            text = f"traffic class {traffic_class} has priority {priority}, PFC is on for {on_for}"
            found[text].append(f"{port.hca}:{port.port}")
    for text, names in found.items():
        yield roce_traffic_classes.finding(
            Severity.INFO,
            f"{node.host} {', '.join(names)}",
            f"NCCL's traffic has no flow control ({text}), so packets are lost under load if the fabric relies on PFC",
            "ask the administrators of the fabric which traffic class RDMA uses, and set NCCL_IB_TC to this class "
            "(the DSCP times 4) on every node",
            Evidence(IB_TC, _set(node) or "not set", "inherited environment and NCCL's configuration files"),
        )


def _set(node: NodeFacts) -> str:
    files = (entry.value for entry in known_or(node.nccl_conf, ()) if entry.name == IB_TC)
    return inherited_value(node, IB_TC) or next(files, "")


def _chosen(node: NodeFacts) -> int | None:
    """Return the traffic class that NCCL uses, which is 0 by default.

    Return None if the variable's value is not a traffic class.
    """
    value, rest = parsed_integer(_set(node) or "0")
    return value if not rest and 0 <= value < 256 else None
