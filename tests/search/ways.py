"""Nodes and what they offer, for tests of the ways between them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from preflight.model.facts import NetifKind
from preflight.model.gap import Gap
from preflight.model.network_survey import NetworkSurvey, NodeOffers, Offer, PathEnd, PathResult
from preflight.search.nodes.interface_choice import choose, judge_sets, plan_paths, results_of


def offer(netif: str, address: str, **overrides: Any) -> Offer:
    made: dict[str, Any] = {
        "kind": NetifKind.PHYSICAL,
        "mtu": 1500,
        "speed_mbit_s": 10_000,
        "prefix_bits": 24,
        "port": 4000,
    }
    return Offer(netif=netif, address=address, **(made | overrides))


def nodes(count: int, *netifs: str) -> list[NodeOffers]:
    """Return nodes with these interfaces, each name in a network of its own."""
    return [
        NodeOffers(
            k,
            f"n{k}",
            tuple(offer(name, f"10.{i}.{k // 250}.{k % 250 + 1}", prefix_bits=16) for i, name in enumerate(netifs)),
        )
        for k in range(count)
    ]


def ends(of: Callable[[PathResult], PathEnd], listed: list[NodeOffers], met: dict[int, str] | None = None) -> Any:
    """Return the results of every planned attempt, ended as `of` says."""
    planned = plan_paths(listed, met or {}, "run")
    answers = {}
    for rank, tasks in planned.items():
        bare = [PathResult(rank, t.netif, t.to_node, t.to_netif, PathEnd.OK) for t in tasks]
        answers[rank] = [
            PathResult(r.from_node, r.netif, r.to_node, r.to_netif, of(r), "", 50.0, 1.0) if of(r) is PathEnd.OK
            else PathResult(r.from_node, r.netif, r.to_node, r.to_netif, of(r))
            for r in bare
        ]  # fmt: skip
    return results_of(planned, answers)


def between(listed: list[NodeOffers], of: Callable[[PathResult], PathEnd], **overrides: Any) -> NetworkSurvey:
    """Return what these nodes learnt where the attempts ended as `of` says."""
    results = ends(of, listed)
    sets = judge_sets(listed, {}, results)
    chosen = choose(sets)
    made: dict[str, Any] = {
        "nodes": tuple(listed), "results": results, "untold": 0, "sets": sets, "chosen": chosen.name if chosen else "",
        "clocks": (), "storage": Gap("no --checkpoint-dir was given"), "took_s": 1.0,
    }  # fmt: skip
    return NetworkSurvey(**(made | overrides))
