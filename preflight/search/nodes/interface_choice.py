"""Plan tests between the network interfaces of the nodes, and find the fastest interfaces that reach every node.

The functions do no I/O.
"""

from __future__ import annotations

import ipaddress
import random
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from statistics import median

from preflight.model.facts import Gap, Netif, NetifKind
from preflight.model.gap import known_or
from preflight.model.network_survey import NetifSet, NodeOffers, Offer, PathEnd, PathResult, PathTask
from preflight.search.settings.candidates import LINK_LOCAL, why_unusable

FULL_MATRIX_NODES = 16
RANDOM_PEERS = 7
MOST_OFFERS = 32  # interfaces of a node
MEETING = "the meeting's"
PHYSICAL = frozenset({NetifKind.PHYSICAL, NetifKind.BOND, NetifKind.VLAN, NetifKind.IPOIB})
# A short measurement can't distinguish two paths whose values differ by less than these factors.
SAME_SPEED = 0.75
SAME_ROUND_TRIP = 1.5

WORDS = {
    PathEnd.OK: "works",
    PathEnd.SMALL_ONLY: "drops large packets",
    PathEnd.ITSELF: "has the same address on both nodes",
    PathEnd.STRANGER: "is answered by another program",
    PathEnd.REFUSED: "is refused",
    PathEnd.NO_ROUTE: "has no route",
    PathEnd.DROPPED: "gets no answer",
    PathEnd.FAILED: "fails",
    PathEnd.UNTRIED: "was not tested completely",
}


def offers_of(netifs: Sequence[Netif] | Gap) -> tuple[Offer, ...]:
    """Return the addresses to which other nodes can connect: one per usable interface, at most MOST_OFFERS.

    Physical interfaces come first.
    """
    # An IPv4 address is preferred, as in NCCL and gloo.
    found = []
    for netif in known_or(netifs, ()):
        usable = [each for each in known_or(netif.addresses, ()) if _is_global(each)]
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
    """Return groups of interfaces that may belong together, as {group name: {node rank: interface}}.

    A group may lack some of the nodes.
    """
    # A group has the interfaces of one subnet, the interfaces of one name, or the interfaces over which the nodes
    # joined (`met`). Identical groups share one name. An interface that matches no other node is in no group.
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
    """Return the subnet of the address in `offer`, such as `10.0.0.0/24`, or "" if the prefix length is unknown."""
    if isinstance(offer.prefix_bits, Gap):
        return ""
    try:
        return str(ipaddress.ip_network(f"{offer.address}/{offer.prefix_bits}", strict=False))
    except ValueError:
        return ""


def plan_paths(nodes: Sequence[NodeOffers], met: Mapping[int, str], run_id: str) -> dict[int, tuple[PathTask, ...]]:
    """Return the paths that each node tests, by node rank.

    The same `run_id` gives the same plan. With more than 16 nodes, not every path is tested.
    """
    # With more than 16 nodes, each node tests only the paths to a neighbor and to 7 random nodes. These nodes also test
    # the paths back.
    offers = {(node.node_rank, offer.netif): offer for node in nodes for offer in node.offers}
    planned: dict[int, dict[tuple[str, int, str], PathTask]] = {node.node_rank: {} for node in nodes}
    for name, members in groups(nodes, met).items():
        for here, there in _pairs(sorted(members), f"{run_id} {name}"):
            source, target = offers[(here, members[here])], offers[(there, members[there])]
            if (":" in source.address) == (":" in target.address):
                task = PathTask(source.netif, source.address, there, target.netif, target.address, target.port)
                planned[here][source.netif, there, target.netif] = task
    return {node_rank: tuple(tasks.values()) for node_rank, tasks in planned.items()}


def _pairs(members: Sequence[int], seed: str) -> Iterator[tuple[int, int]]:
    """Yield (calling node, called node) for the paths to test; every pair occurs in both directions."""
    count = len(members)
    if count <= FULL_MATRIX_NODES:
        for i, here in enumerate(members):
            for step in range(1, count):
                yield here, members[(i + step) % count]
        return
    chance = random.Random(seed)
    for i, here in enumerate(members):
        neighbour = (i + 1) % count
        drawn = [each for each in chance.sample(range(count), RANDOM_PEERS + 2) if each not in (i, neighbour)]
        for other in (neighbour, *drawn[:RANDOM_PEERS]):
            yield here, members[other]
            yield members[other], here


def results_of(
    planned: Mapping[int, Sequence[PathTask]], answers: Mapping[int, Sequence[PathResult]]
) -> tuple[PathResult, ...]:
    """Return a result for every planned path test. A test without an answer is UNTRIED.

    The keys of `planned` and `answers` are node ranks.
    """
    found: list[PathResult] = []
    for node_rank, tasks in planned.items():
        answered = {(each.netif, each.to_node, each.to_netif): each for each in answers.get(node_rank, ())}
        keys = ((task.netif, task.to_node, task.to_netif) for task in tasks)
        found += [answered.get(key) or PathResult(node_rank, *key, PathEnd.UNTRIED) for key in keys]
    return tuple(found)


def judge_sets(
    nodes: Sequence[NodeOffers], met: Mapping[int, str], results: Sequence[PathResult]
) -> tuple[NetifSet, ...]:
    """Return the sets of interfaces, one interface per node, with the results of their path tests.

    If a set does not reach every node, `problem` has the reason.
    """
    # `met` has the interface over which each node joined.
    hosts = {node.node_rank: node.host for node in nodes}
    offers = {(node.node_rank, offer.netif): offer for node in nodes for offer in node.offers}
    by_source = defaultdict[tuple[int, str], list[PathResult]](list)
    for result in results:
        by_source[result.from_node, result.netif].append(result)
    found = []
    for name, members in groups(nodes, met).items():
        if set(members) == set(hosts):
            sent = [result for place in members.items() for result in by_source[place]]
            within = [result for result in sent if members[result.to_node] == result.to_netif]
            found.append(_judge(name, members, [offers[place] for place in members.items()], within, hosts))
    return tuple(found)


def _judge(
    name: str, members: Mapping[int, str], offers: Sequence[Offer], within: Sequence[PathResult], hosts: dict[int, str]
) -> NetifSet:
    tried = {result.from_node for result in within} & {result.to_node for result in within}
    bad = [result for result in within if result.end is not PathEnd.OK]
    problem = ""
    if bad:
        first = min(bad, key=lambda each: each.end is PathEnd.UNTRIED)
        where = f"{hosts[first.from_node]} {first.netif} to {hosts[first.to_node]} {first.to_netif}"
        problem = f"{where} {WORDS[first.end]}" + (f" (and {len(bad) - 1} more)" if len(bad) > 1 else "")
    elif tried != set(members):
        untried = [hosts[rank] for rank in members if rank not in tried]
        problem = f"{', '.join(untried[:4])} could not be tried through it"
    speeds = [offer.speed_mbit_s for offer in offers if not isinstance(offer.speed_mbit_s, Gap)]
    rates = [each.gb_s for each in within if not isinstance(each.gb_s, Gap)]
    trips = [each.rtt_us for each in within if not isinstance(each.rtt_us, Gap)]
    return NetifSet(
        name=name,
        netifs=tuple(sorted(members.items())),
        problem=problem,
        speed_mbit_s=min(speeds)
        if len(speeds) == len(offers)
        else Gap("some drivers do not report the speed of their link"),
        is_physical=all(offer.kind in PHYSICAL for offer in offers),
        rtt_us=median(trips) if trips else Gap("no round trip was measured"),
        gb_s=min(rates) if rates else Gap("no throughput was measured"),
    )


def choose(sets: Sequence[NetifSet]) -> NetifSet | None:
    """Return the best set of interfaces that reaches every node, or None if there is no such set."""
    # Throughput counts first, then the link rate, then the round-trip time, then whether the interfaces are physical.
    # Differences that a short measurement can't show are ignored.
    usable = [each for each in sets if not each.problem]
    usable = _near_best(usable, [known_or(each.gb_s, 0.0) for each in usable], SAME_SPEED)
    usable = _near_best(usable, [known_or(each.speed_mbit_s, 0.0) for each in usable], 1.0)
    usable = _near_best(usable, [1 / max(known_or(each.rtt_us, 1e9), 1e-3) for each in usable], 1 / SAME_ROUND_TRIP)
    usable = [each for each in usable if each.is_physical] or usable
    return usable[0] if usable else None


def _near_best(sets: Sequence[NetifSet], goodness: Sequence[float], share: float) -> list[NetifSet]:
    best = max(goodness, default=0.0)
    return [each for each, good in zip(sets, goodness, strict=True) if good >= share * best]
