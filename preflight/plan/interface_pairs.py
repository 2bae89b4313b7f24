"""Which address of a node each other node tries to reach, and from which of its own. Pure."""

from __future__ import annotations

import ipaddress
import random
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from preflight.model.between import NodeOffers, Offer, PathTask
from preflight.model.facts import Gap, Netif, NetifKind
from preflight.plan.candidates import LINK_LOCAL, why_unusable

FULL_MATRIX_NODES = 16
RANDOM_PEERS = 7
MOST_OFFERS = 32  # interfaces of a node
MEETING = "the meeting's"
PHYSICAL = frozenset({NetifKind.PHYSICAL, NetifKind.BOND, NetifKind.VLAN, NetifKind.IPOIB})

Place = tuple[int, str]  # a node and one of its interfaces
Groups = Mapping[str, Mapping[int, str]]  # by name: one interface each of some nodes


def offers_of(netifs: Sequence[Netif] | Gap) -> tuple[Offer, ...]:
    """Return an address of each interface that sockets can use: IPv4 where there is one, as NCCL and gloo choose."""
    found = []
    for netif in () if isinstance(netifs, Gap) else netifs:
        addresses = () if isinstance(netif.addresses, Gap) else netif.addresses
        usable = [each for each in addresses if _is_global(each)]
        if usable and not why_unusable(netif):
            found.append(Offer(netif.name, netif.kind, usable[0], netif.mtu, netif.speed_mbit_s))
    return tuple(sorted(found, key=lambda offer: offer.kind not in PHYSICAL)[:MOST_OFFERS])


def _is_global(text: str) -> bool:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return False
    return not address.is_loopback and not text.startswith(LINK_LOCAL)


def groups(nodes: Sequence[NodeOffers], met: Mapping[int, str]) -> dict[str, dict[int, str]]:
    """Return what may belong together: the interfaces of one subnet, of one name, and those of the meeting.

    A group need not have all nodes. Groups that are the same have one name; an interface that no other node has a
    match for is in none.
    """
    found: dict[str, dict[int, str]] = defaultdict(dict)
    listed = [(node.node_rank, offer) for node in nodes for offer in node.offers if offer.port]
    for node_rank, offer in listed:
        subnet = subnet_of(offer)
        if subnet:
            found[f"subnet {subnet}"].setdefault(node_rank, offer.netif)
    for node_rank, offer in listed:
        found[f"name {offer.netif}"].setdefault(node_rank, offer.netif)
    offered = {(node_rank, offer.netif) for node_rank, offer in listed}
    found[MEETING] = {rank: netif for rank, netif in met.items() if (rank, netif) in offered}
    distinct: dict[tuple[tuple[int, str], ...], str] = {}
    for name, members in found.items():
        if len(members) > 1:
            distinct.setdefault(tuple(sorted(members.items())), name)
    return {name: dict(members) for members, name in distinct.items()}


def subnet_of(offer: Offer) -> str:
    """Return the network that an address lies in, "" where its prefix is not known."""
    if isinstance(offer.prefix_bits, Gap):
        return ""
    try:
        return str(ipaddress.ip_network(f"{offer.address}/{offer.prefix_bits}", strict=False))
    except ValueError:
        return ""


def plan_paths(nodes: Sequence[NodeOffers], met: Mapping[int, str], run_id: str) -> dict[int, tuple[PathTask, ...]]:
    """Return what each node tries, by node rank: every other up to 16 nodes, else a neighbour and 7 more by chance.

    The same run gives the same plan. A node's peers follow it in turn, so that all nodes are called equally often at
    the same time.
    """
    offers = {(node.node_rank, offer.netif): offer for node in nodes for offer in node.offers}
    planned: dict[int, dict[tuple[str, int, str], PathTask]] = {node.node_rank: {} for node in nodes}
    for name, members in groups(nodes, met).items():
        for here, there in _pairs(sorted(members), f"{run_id} {name}"):
            source, target = offers[(here, members[here])], offers[(there, members[there])]
            if (":" in source.address) == (":" in target.address):
                key = (source.netif, there, target.netif)
                planned[here][key] = PathTask(
                    source.netif, source.address, there, target.netif, target.address, target.port
                )
    return {node_rank: tuple(tasks.values()) for node_rank, tasks in planned.items()}


def _pairs(members: Sequence[int], seed: str) -> Iterator[tuple[int, int]]:
    """Yield who calls whom; whoever calls is also called back, so that both directions are known."""
    count = len(members)
    if count <= FULL_MATRIX_NODES:
        for i, here in enumerate(members):
            for step in range(1, count):
                yield here, members[(i + step) % count]
        return
    chance = random.Random(seed)
    for i, here in enumerate(members):
        others = _sample(chance, count, i)
        for other in others:
            yield here, members[other]
            yield members[other], here


def _sample(chance: random.Random, count: int, own: int) -> Iterable[int]:
    neighbour = (own + 1) % count
    drawn = chance.sample(range(count), RANDOM_PEERS + 2)
    return [neighbour, *[each for each in drawn if each not in (own, neighbour)][:RANDOM_PEERS]]
