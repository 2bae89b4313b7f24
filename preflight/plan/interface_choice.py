"""Which interface each node should use, from who reached whom: the fastest set that reaches everybody. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

from preflight.model.between import NetifSet, NodeOffers, Offer, PathEnd, PathResult, PathTask
from preflight.model.facts import Gap
from preflight.plan.interface_pairs import PHYSICAL, groups

# Within these a moment's measurement can't tell one way from another.
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
    PathEnd.UNTRIED: "was not tried to the end",
}


def results_of(
    planned: Mapping[int, Sequence[PathTask]], answers: Mapping[int, Sequence[PathResult]]
) -> tuple[PathResult, ...]:
    """Return a result for every attempt that was planned; one that nobody reported is untried, and proves nothing."""
    found = []
    for node_rank, tasks in planned.items():
        told = {(each.netif, each.to_node, each.to_netif): each for each in answers.get(node_rank, ())}
        for task in tasks:
            key = (task.netif, task.to_node, task.to_netif)
            missing = PathResult(node_rank, task.netif, task.to_node, task.to_netif, PathEnd.UNTRIED)
            found.append(told.get(key, missing))
    return tuple(found)


def judge_sets(
    nodes: Sequence[NodeOffers], met: Mapping[int, str], results: Sequence[PathResult]
) -> tuple[NetifSet, ...]:
    """Return the sets that have an interface of every node, each with why it does not reach everybody."""
    hosts = {node.node_rank: node.host for node in nodes}
    offers = {(node.node_rank, offer.netif): offer for node in nodes for offer in node.offers}
    by_source: dict[tuple[int, str], list[PathResult]] = {}
    for result in results:
        by_source.setdefault((result.from_node, result.netif), []).append(result)
    found = []
    for name, members in groups(nodes, met).items():
        if set(members) == set(hosts):
            within = [
                result
                for place in members.items()
                for result in by_source.get(place, ())
                if members[result.to_node] == result.to_netif
            ]
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
        speed_mbit_s=min(speeds) if len(speeds) == len(offers) else Gap("not every driver says its link's speed"),
        is_physical=all(offer.kind in PHYSICAL for offer in offers),
        rtt_us=median(trips) if trips else Gap("no round trip was measured"),
        gb_s=min(rates) if rates else Gap("no throughput was measured"),
    )


def choose(sets: Sequence[NetifSet]) -> NetifSet | None:
    """Return the fastest set that reaches everybody: by throughput, what the link can do, round trip, what it is.

    What a moment's measurement can't tell apart is decided by the next of these, in the end by the order of the sets.
    """
    usable = [each for each in sets if not each.problem]
    usable = _near_best(usable, [_known(each.gb_s, 0.0) for each in usable], SAME_SPEED)
    usable = _near_best(usable, [_known(each.speed_mbit_s, 0.0) for each in usable], 1.0)
    usable = _near_best(usable, [1 / max(_known(each.rtt_us, 1e9), 1e-3) for each in usable], 1 / SAME_ROUND_TRIP)
    usable = [each for each in usable if each.is_physical] or usable
    return usable[0] if usable else None


def _near_best(sets: Sequence[NetifSet], goodness: Sequence[float], share: float) -> list[NetifSet]:
    best = max(goodness, default=0.0)
    return [each for each, good in zip(sets, goodness, strict=True) if good >= share * best]


def _known(value: float | Gap, otherwise: float) -> float:
    return otherwise if isinstance(value, Gap) else value
