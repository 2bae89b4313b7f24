"""What data between the nodes can be held to, one at a time: the interfaces and RDMA ports that nodes share. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from preflight.model.between import Between, NetifSet, PathEnd
from preflight.model.facts import Gap
from preflight.model.isolation import BadPath, Way, WayKind
from preflight.model.together import Alone
from preflight.plan.settings.rdma import is_usable

FEWEST_NODES = 3  # of two nobody is named
MOST_BROKEN = 64  # pairs of a way; one that reaches nobody shows it in the first of them


def ways_between(alones: Mapping[int, Alone], between: Between | None) -> tuple[Way, ...]:
    """Return the ways, those that tell most first: a rail, an interface, the other rails, the other interfaces.

    A node with few ranks has no place for all of them. RDMA ports count where every backend speaks NCCL's dialect.
    """
    if len(alones) < FEWEST_NODES:
        return ()
    ports = list(_ports(alones)) if all(alone.dialect == "nccl" for alone in alones.values()) else []
    netifs = list(_netifs(between)) if between else []
    return (*ports[:1], *netifs[:1], *ports[1:], *netifs[1:])


def _ports(alones: Mapping[int, Alone]) -> Iterator[Way]:
    """Yield every port that two or more nodes can use: rails have the same name everywhere, as NCCL takes them."""
    ends: dict[str, list[tuple[int, str]]] = {}
    for node_rank, alone in alones.items():
        ports = () if isinstance(alone.facts.hca_ports, Gap) else alone.facts.hca_ports
        for port in filter(is_usable, ports):
            name = f"{port.hca}:{port.port}"
            ends.setdefault(name, []).append((node_rank, name))
    for found in ends.values():
        if len(found) > 1:
            yield Way(WayKind.PORT, tuple(found))


def _netifs(between: Between) -> Iterator[Way]:
    """Yield the sets of interfaces, the chosen one first: whoever fails most likely fails through that."""
    for each in sorted(between.sets, key=lambda each: each.name != between.chosen):
        yield Way(WayKind.NETIF, each.netifs, _broken(each, between))


def _broken(chosen: NetifSet, between: Between) -> tuple[BadPath, ...]:
    members = dict(chosen.netifs)
    pairs = (
        (min(result.from_node, result.to_node), max(result.from_node, result.to_node))
        for result in between.results
        if result.end not in (PathEnd.OK, PathEnd.UNTRIED)
        and members.get(result.from_node) == result.netif
        and members.get(result.to_node) == result.to_netif
    )
    return tuple(BadPath(a, b) for a, b in list(dict.fromkeys(pairs))[:MOST_BROKEN])
