from __future__ import annotations

from collections import defaultdict

from preflight.errors import NotApplicable, UnreadableFact
from preflight.judge.check import Case, Findings, node_check
from preflight.judge.gpus_of_node import NO_GPU
from preflight.judge.node_limits import is_contained, owner
from preflight.judge.pci_fabric import ports_of, verbs_nics
from preflight.model.bound import JUDGMENT, Bound
from preflight.model.facts import Gap, HcaPort, Netif, NodeFacts, known, known_or
from preflight.model.finding import Blame, Evidence, Severity, Unseen
from preflight.model.hca import ETHERNET, PhysState, PortState
from preflight.model.repairs import RDMA

STUCK = frozenset({PortState.INIT, PortState.ARMED})
INFINIBAND = "InfiniBand"  # a RoCE or EFA port has no subnet manager


@node_check("hca-port-stuck", blame=Blame.FABRIC, unseen=Unseen.ACCEPTANCE, reads=("hca_ports",))
def hca_port_stuck(node: NodeFacts, case: Case) -> Findings:
    """Every InfiniBand port with a link is ACTIVE.

    Yields a FAIL for each InfiniBand port that is in state INIT or ARMED while the link is up.

    Can't see: whether an ACTIVE port reaches its peers.
    """
    # An InfiniBand port is unusable until a subnet manager has configured the port, although the link is up.
    ports = [port for port in known(node.hca_ports) if port.link_layer == INFINIBAND]
    if not ports:
        raise NotApplicable("there is no InfiniBand port")
    for port in ports:
        state = known_or(port.state, None)
        if port.phys_state is PhysState.LINK_UP and state in STUCK:
            yield hca_port_stuck.finding(
                Severity.FAIL,
                f"{node.host} {port.hca}:{port.port}",
                f"the link is up, but the port is {state.value}, not ACTIVE",
                "start a subnet manager (OpenSM or UFM), or repair the path from this port to the subnet manager",
                Evidence("port state", state.value, f"/sys/class/infiniband/{port.hca}/ports/{port.port}"),
                Evidence("subnet manager's LID", str(known_or(port.sm_lid, 0) or "none"), "sm_lid"),
            )


@node_check("hca-siblings", blame=Blame.FABRIC, unseen=Unseen.NOTHING, reads=("nics", "hca_ports"))
def hca_siblings(node: NodeFacts, case: Case) -> Findings:
    """Active ports of the same adapter model run at the same rate.

    Yields a WARN for each active port that is slower than another port of the same model and link layer. Yields an INFO
    for ports that are DOWN while another port of the same model and link layer is active.

    Can't see: ports that are all equally slow, and adapters whose PCI IDs can't be read.
    """
    # If ports of one adapter model differ, a cable may be bad, or a port or an adapter was forgotten. Ports that
    # hca-port-inactive reports are left out.
    groups: dict[tuple[str, str], list[HcaPort]] = defaultdict(list)
    for nic in verbs_nics(node):
        for port in ports_of(node, nic):
            if isinstance(nic.device, str) and isinstance(port.link_layer, str):
                groups[nic.device, port.link_layer].append(port)
    if all(len(ports) < 2 for ports in groups.values()):
        raise NotApplicable("no two RDMA ports have the same model")
    missing = _missing(node)
    for (device, _), ports in sorted(groups.items()):
        active = [port for port in ports if port.state is PortState.ACTIVE]
        rates = [(port, port.rate_gbit_s) for port in active if isinstance(port.rate_gbit_s, float)]
        fastest = max((rate for _, rate in rates), default=0.0)
        for port, rate in rates:
            if rate < fastest:
                yield hca_siblings.finding(
                    Severity.WARN,
                    f"{node.host} {port.hca}:{port.port}",
                    f"the port runs at {rate:g} Gbit/s, but other ports of its model ({device}) run at {fastest:g} "
                    f"Gbit/s",
                    "check the cable, the transceiver and the switch port. `mlxlink -d DEVICE` shows the negotiated "
                    "rate",
                    Evidence(
                        "port rate", f"{rate:g} Gbit/s", f"/sys/class/infiniband/{port.hca}/ports/{port.port}/rate"
                    ),
                )
        down = [port for port in ports if port.state is PortState.DOWN and port not in missing]
        if active and down:
            yield hca_siblings.finding(
                Severity.INFO,
                f"{node.host} {', '.join(f'{port.hca}:{port.port}' for port in down)}",
                f"down, while other ports of the model ({device}) are active, so NCCL does not use it",
                "check the cable and the switch port, unless no cable is intended",
                *(Evidence("port state", "DOWN", f"/sys/class/infiniband/{port.hca}") for port in down),
            )


ALIKE = Bound(
    3, "active siblings (the same port of other adapters of the model)",
    "four or more equal ports are the rails of a fabric; fewer ports may have another purpose",
    JUDGMENT,
    "too low: a spare port causes a warning; too high: a dead rail of a small node passes",
)  # fmt: skip


@node_check(
    "hca-port-inactive", blame=Blame.FABRIC, unseen=Unseen.ACCEPTANCE, reads=("nics", "hca_ports"), bounds=(ALIKE,)
)
def hca_port_inactive(node: NodeFacts, case: Case) -> Findings:
    """No RDMA port is down if the port with the same number is active on all other adapters of the model.

    Yields a WARN for each enabled port without a link if the port is active on all other adapters of the model. With
    --accept, this WARN rejects the node.

    Can't see: models with fewer than four adapters, and ports that are up but reach no other node.
    """
    # A port that is down costs a multi-node job a part of its network speed. NCCL on a single node never shows the
    # loss. The model needs at least three other adapters. If a policy sets the number of active ports, the policy
    # decides instead.
    if case.policy is not None and "active_ports" in case.policy.expect:
        raise NotApplicable("the policy says how many ports must be active")
    if not verbs_nics(node):
        unknown = next((nic for nic in known(node.nics) if isinstance(nic.kind, Gap)), None)
        if unknown is not None and isinstance(unknown.kind, Gap):
            raise UnreadableFact(f"the type of {unknown.name} could not be read: {unknown.kind.reason}")
        raise NotApplicable("there is no InfiniBand or RoCE adapter")
    for port in _missing(node):
        yield hca_port_inactive.finding(
            Severity.WARN,
            f"{node.host} {port.hca}:{port.port}",
            "the port has no link, but the same port of every other adapter of its model is active, so this network "
            "port is lost",
            "check the port's cable, transceiver and switch port (`mlxlink -d DEVICE`). If no cable is intended, set "
            "[expect] active_ports in the policy",
            Evidence("port state", "DOWN", f"/sys/class/infiniband/{port.hca}/ports/{port.port}"),
        )
    for nic in verbs_nics(node):
        for port in ports_of(node, nic):
            known(port.state)


def _missing(node: NodeFacts) -> tuple[HcaPort, ...]:
    """Return each port that is down although all its siblings are active.

    Siblings are ports with the same number, on the same PCI function of other adapters of the model. At least ALIKE
    siblings must be active.
    """
    places: dict[tuple[str, str, int, str], list[HcaPort]] = defaultdict(list)
    for nic in verbs_nics(node):
        for port in ports_of(node, nic):
            if isinstance(nic.device, str) and isinstance(nic.bdf, str) and isinstance(port.link_layer, str):
                places[nic.device, port.link_layer, port.port, nic.bdf.rpartition(".")[2]].append(port)
    found: list[HcaPort] = []
    for ports in places.values():
        active = [port for port in ports if port.state is PortState.ACTIVE]
        down = [port for port in ports if port.state is PortState.DOWN and port.phys_state is not PhysState.DISABLED]
        if len(active) >= ALIKE.value and len(down) == 1 and len(active) + 1 == len(ports):
            found += down
    return tuple(found)


@node_check("rdma-devices", blame=Blame.CONTAINER, unseen=Unseen.NOTHING, reads=("rdma", "system"))
def rdma_devices(node: NodeFacts, case: Case) -> Findings:
    """Every RDMA adapter that the kernel shows can be opened.

    Yields a WARN if device files of adapters are missing and the run uses GPUs. NCCL then silently uses sockets.

    Can't see: permissions on the device files.
    """
    # In a container, /sys may show adapters without their device files in /dev.
    if not case.wants_gpus:
        raise NotApplicable(NO_GPU)
    rdma = known(node.rdma)
    if not known(rdma.uverbs_expected):
        raise NotApplicable("the kernel shows no RDMA adapter")
    missing = sorted({*known(rdma.uverbs_expected)} - {*rdma.uverbs})
    if not missing:
        return
    yield rdma_devices.finding(
        Severity.WARN,
        f"{node.host} /dev/infiniband",
        f"{len(missing)} of {len(known(rdma.uverbs_expected))} device files of RDMA adapters are missing "
        f"({', '.join(missing)}): NCCL can't open these adapters and uses sockets",
        RDMA.container
        if is_contained(node)
        else "run `modprobe ib_uverbs` and check udev's rules, until `ls /dev/infiniband` lists the files",
        Evidence("device files", ", ".join(rdma.uverbs) or "none", "/dev/infiniband"),
        Evidence("adapters", ", ".join(known(rdma.uverbs_expected)), "/sys/class/infiniband_verbs"),
        blame=owner(node),
    )


V2 = "RoCE v2"


@node_check("roce-gid", blame=Blame.CONFIGURATION, unseen=Unseen.NOTHING, reads=("nics", "hca_ports"))
def roce_gid(node: NodeFacts, case: Case) -> Findings:
    """Every active RoCE port has a version 2 GID.

    Yields a WARN for each active RoCE port without a version 2 GID. EFA ports are not judged.

    Can't see: whether the network routes the traffic, and lossless settings (PFC, ECN).
    """
    # Without a version 2 GID, the traffic of a RoCE port can't be routed. NCCL since 2.21 finds no usable GID on a port
    # without a version 2 GID.
    ports = [port for nic in verbs_nics(node) for port in ports_of(node, nic)]
    active = [port for port in ports if port.link_layer == ETHERNET and port.state is PortState.ACTIVE]
    if not active:
        raise NotApplicable("no RoCE port is active")
    for port in active:
        if not _has_v2(port):
            gids = f"/sys/class/infiniband/{port.hca}/ports/{port.port}/gids"
            yield roce_gid.finding(
                Severity.WARN,
                f"{node.host} {port.hca}:{port.port}",
                "the port has no RoCE v2 GID, so NCCL can use it at most within its own Ethernet segment",
                "give its interface an IP address and bring the interface up. Choose RoCE v2 with `cma_roce_mode` or "
                "the driver's options",
                Evidence("GIDs", str(len(known(port.gids))), gids),
            )


def _has_v2(port: HcaPort) -> bool:
    gids = known(port.gids)
    if any(gid.type == V2 for gid in gids):
        return True
    for gid in gids:
        if isinstance(gid.type, Gap):
            raise UnreadableFact(f"the types of the GIDs of {port.hca}:{port.port}: {gid.type.reason}")
    return False


LINK_LOCAL = "169.254."
ANSWERS_FOR_OTHERS = frozenset({0, 3})  # the kernel's ip-sysctl: 3 leaves out addresses of the host's scope only


@node_check("roce-same-network", blame=Blame.HOST, unseen=Unseen.NOTHING, reads=("nics", "hca_ports", "netifs"))
def roce_same_network(node: NodeFacts, case: Case) -> Findings:
    """If active RoCE ports share an IPv4 network, each port answers only for its own address.

    Yields a WARN for each network with several RoCE ports if one of the ports has arp_ignore 0 or 3.

    Can't see: rules and routes that keep traffic to its own interface, and what the switches do.
    """
    # By default, Linux answers ARP requests for all its addresses on every interface. If two RoCE ports are in one
    # network, a peer may learn the wrong card for an address, and connections time out (errno 110).
    ports = [port for nic in verbs_nics(node) for port in ports_of(node, nic)]
    active = [port for port in ports if port.link_layer == ETHERNET and port.state is PortState.ACTIVE]
    if len(active) < 2:
        raise NotApplicable("fewer than two RoCE ports are active")
    names = {gid.netif for port in active for gid in known_or(port.gids, ()) if isinstance(gid.netif, str)}
    netifs = [netif for netif in known(node.netifs) if netif.name in names]
    if all(isinstance(netif.addresses, tuple) and not any("." in each for each in netif.addresses) for netif in netifs):
        raise NotApplicable("no RoCE interface has an IPv4 address")
    if not any(netif.networks for netif in netifs) or all(netif.arp_ignore < 0 for netif in netifs):
        raise UnreadableFact("the IPv4 networks of the RoCE interfaces, or arp_ignore, are not known")
    by_network = defaultdict[str, list[Netif]](list)
    for netif in netifs:
        for network in netif.networks:
            if not network.startswith(LINK_LOCAL):
                by_network[network].append(netif)
    for network, sharing in by_network.items():
        answering = [netif.name for netif in sharing if netif.arp_ignore in ANSWERS_FOR_OTHERS]
        if len(sharing) > 1 and answering:
            yield roce_same_network.finding(
                Severity.WARN,
                f"{node.host} {', '.join(netif.name for netif in sharing)}",
                f"these RoCE interfaces are all in {network}, and each answers ARP requests for the others' addresses",
                "run `sudo sysctl -w net.ipv4.conf.all.arp_ignore=1 net.ipv4.conf.all.arp_announce=2` on every node "
                "(and put both into /etc/sysctl.d), or put each port into a different network",
                Evidence("arp_ignore is 0 or 3 on", ", ".join(answering), "/proc/sys/net/ipv4/conf"),
            )
