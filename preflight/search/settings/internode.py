"""NCCL settings that matter only between nodes. Values that depend on the switches, such as TC, are not guessed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from preflight.model.facts import NodeFacts
from preflight.model.gap import known_or
from preflight.model.gpu import may_span_nodes
from preflight.model.hca import HcaPort, PortState
from preflight.model.joint import SoloResult
from preflight.model.network_survey import NetifSet
from preflight.model.transport import CarrierKind
from preflight.model.trial import Candidate, Scope
from preflight.search.settings.rdma import usable_ports, v2_index

FAST_TCP_MBIT_S = 25_000
MOST_PORTS = 8
ANYWHERE = Scope.ANYWHERE
BUILT_IN = frozenset({"IB", "Socket"})  # NCCL's own networks, as it names them
USABLE = frozenset({PortState.ACTIVE, PortState.ACTIVE_DEFER})


def between_nodes(solo_results: Mapping[int, SoloResult], chosen: NetifSet | None) -> Iterator[Candidate]:
    """Yield configurations that may repair or speed up NCCL between these nodes, if all nodes use NCCL."""
    if all(solo.dialect == "nccl" for solo in solo_results.values()):
        by_env: dict[object, Candidate] = {}
        for each in _planned(solo_results, chosen):
            by_env.setdefault(each.env, each)
        yield from by_env.values()


def _planned(solo_results: Mapping[int, SoloResult], chosen: NetifSet | None) -> Iterator[Candidate]:
    nodes = [solo.facts for solo in solo_results.values()]
    yield from _rails(nodes)
    yield from _adapters(nodes)
    yield from _connections(nodes, chosen)
    yield from _mnnvl(nodes)
    yield from _family(nodes, chosen)
    yield from _without_ports(nodes)
    yield from _other_paths(solo_results)
    yield from _without_rdma(solo_results)


def _candidate(reason: str, *env: tuple[str, str]) -> Candidate:
    return Candidate(" ".join(f"{name}={value}" for name, value in env), env, reason, Scope.ANYWHERE)


def _active(node: NodeFacts) -> list[HcaPort]:
    return [port for port in known_or(node.hca_ports, ()) if port.state in USABLE]


def _rails(nodes: Sequence[NodeFacts]) -> Iterator[Candidate]:
    if all(len(_active(node)) > 1 for node in nodes):
        reason = "every node has several active RDMA ports: in a rail-only fabric, data must stay on its rail"
        yield _candidate(reason, ("NCCL_CROSS_NIC", "0"))


def _adapters(nodes: Sequence[NodeFacts]) -> Iterator[Candidate]:
    """Yield one configuration with the RDMA ports that are active on every node.

    Yield another configuration with only the fastest of these ports. A configuration that would change nothing is left
    out. Other configurations test single ports (`_without_ports`).
    """
    by_node = [{(port.hca, port.port): port for port in _active(node)} for node in nodes]
    common = set.intersection(*map(set, by_node)) if by_node else set()
    everything = set.union(*map(set, by_node)) if by_node else set()
    if common and common != everything:
        missing = ", ".join(f"{hca}:{port}" for hca, port in sorted(everything - common)[:4])
        yield _candidate(f"{missing} is not active on every node", ("NCCL_IB_HCA", _exactly(common)))
    rates = {place: min(known_or(ports[place].rate_gbit_s, 0.0) for ports in by_node) for place in common}
    fastest = {place for place, rate in rates.items() if rate == max(rates.values())}
    if fastest and fastest != common:
        yield _candidate("the rails differ in rate: only the fastest", ("NCCL_IB_HCA", _exactly(fastest)))


def _exactly(places: set[tuple[str, int]]) -> str:
    return "=" + ",".join(f"{hca}:{port}" for hca, port in sorted(places))


def _without_ports(nodes: Sequence[NodeFacts]) -> Iterator[Candidate]:
    """For each usable port that all nodes have, yield a configuration with only this port.

    If all nodes have three or more usable ports in common, also yield configurations that omit one of these ports each.
    """
    by_node = [{(port.hca, port.port) for port in usable_ports(node)} for node in nodes]
    common = set.intersection(*by_node)
    if len(common) < 2:
        return
    named = [(f"hca {hca}:{port}", {(hca, port)}) for hca, port in sorted(common)[:MOST_PORTS]]
    for name, place in named:
        yield Candidate(name, (("NCCL_IB_HCA", _exactly(place)),), "one port alone", ANYWHERE, only_cures=True)
    for name, place in named if len(common) > 2 else ():
        env = (("NCCL_IB_HCA", _exactly(common - place)),)
        yield Candidate(f"without {name}", env, "every other port that all nodes have", ANYWHERE, only_cures=True)


def _other_paths(solo_results: Mapping[int, SoloResult]) -> Iterator[Candidate]:
    """Yield three configurations that keep all ports: no GPUDirect, no adapters inside a node, a fixed GID index.

    Each configuration costs speed, or sets a value that NCCL can find without help. A configuration is therefore tested
    only if the log suggests the configuration (infiniband.py).
    """
    nodes = [solo.facts for solo in solo_results.values()]
    usable = [usable_ports(node) for node in nodes]
    if not all(usable):
        return
    reason = "the adapters reach GPU memory by way of host memory: no GPUDirect"
    yield replace(_candidate(reason, ("NCCL_NET_GDR_LEVEL", "LOC")), only_cures=True)
    if all(len(ports) > 1 for ports in usable) and all(solo.ranks > 1 for solo in solo_results.values()):
        reason = (
            "traffic inside a node stays on the node's own links: the network planes (rails) may be unable to reach "
            "each other"
        )
        yield replace(_candidate(reason, ("NCCL_NET_DISABLE_INTRA", "1")), only_cures=True)
    indices = {v2_index(port) for ports in usable for port in ports}
    if len(indices) == 1 and None not in indices:
        reason = "the index of the RoCE v2 GID with an IPv4 address, on every port of every node"
        yield replace(_candidate(reason, ("NCCL_IB_GID_INDEX", str(indices.pop()))), only_cures=True)


def _without_rdma(solo_results: Mapping[int, SoloResult]) -> Iterator[Candidate]:
    """If a node has an active RDMA port, yield a configuration that uses TCP sockets.

    If a plugin provides the network, the configuration sets NCCL_NET=Socket. NCCL_IB_DISABLE turns off only NCCL's own
    InfiniBand.
    """
    active = [_active(solo.facts) for solo in solo_results.values()]
    if not any(active):
        return
    networks = {
        carrier.name
        for solo in solo_results.values()
        for trial in solo.trials
        for carrier in trial.transport
        if carrier.kind is CarrierKind.NETWORK
    }
    least_gbit_s = min(sum(known_or(port.rate_gbit_s, 0.0) for port in ports) for ports in active)
    rated = f"; the RDMA ports of a node are rated {least_gbit_s / 8:g} GB/s" if least_gbit_s else ""
    env = ("NCCL_NET", "Socket") if networks - BUILT_IN else ("NCCL_IB_DISABLE", "1")
    yield replace(_candidate(f"TCP sockets carry the data in place of RDMA{rated}", env), only_cures=True)


def _connections(nodes: Sequence[NodeFacts], chosen: NetifSet | None) -> Iterator[Candidate]:
    """Yield a configuration that has more queue pairs or more TCP connections between nodes.

    If every node has RDMA, the configuration has more queue pairs. Otherwise, the configuration has more TCP
    connections, but only on a fast link.
    """
    speed_mbit_s = known_or(chosen.speed_mbit_s, 0) if chosen else 0
    if all(_active(node) for node in nodes):
        reason = "switches that choose a path by hash (ECMP) spread several queue pairs over several paths"
        yield _candidate(reason, ("NCCL_IB_QPS_PER_CONNECTION", "4"))
    elif speed_mbit_s >= FAST_TCP_MBIT_S:
        reason = f"one TCP connection does not fill {speed_mbit_s // 1000} Gbit/s"
        yield _candidate(reason, ("NCCL_SOCKET_NTHREADS", "4"), ("NCCL_NSOCKS_PERTHREAD", "4"))


def _mnnvl(nodes: Sequence[NodeFacts]) -> Iterator[Candidate]:
    if all(_may_be_in_a_rack(node) for node in nodes):
        reason = "GPUs with Grace CPUs on an NVLink fabric may span nodes, which needs IMEX on each"
        yield _candidate(reason, ("NCCL_MNNVL_ENABLE", "0"))


def _may_be_in_a_rack(node: NodeFacts) -> bool:
    return any(map(may_span_nodes, known_or(node.gpus, ())))


def _family(nodes: Sequence[NodeFacts], chosen: NetifSet | None) -> Iterator[Candidate]:
    names = dict(chosen.netifs) if chosen else {}
    for node_rank, node in enumerate(nodes):
        for netif in known_or(node.netifs, ()):
            addresses = known_or(netif.addresses, ())
            has_ipv4 = any(":" not in each and "." in each for each in addresses)
            has_ipv6 = any(":" in each and not each.startswith("fe80:") for each in addresses)
            if has_ipv4 and has_ipv6 and names.get(node_rank, netif.name) == netif.name:
                reason = f"{netif.name} on {node.host} has IPv4 and IPv6 addresses: IPv6 may lead nowhere"
                yield _candidate(reason, ("NCCL_SOCKET_FAMILY", "AF_INET"))
                return
