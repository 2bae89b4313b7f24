"""The rounds of groups on the page: in words, and short however many nodes there are."""

from __future__ import annotations

from dataclasses import replace

from preflight.model.codec import decode, encode
from preflight.model.gap import Gap
from preflight.model.isolation import (
    NO_ISOLATION,
    GroupOutcome,
    GroupTrial,
    Isolation,
    IsolationRound,
    RouteKind,
    RouteTrial,
)
from preflight.model.trial import Outcome
from preflight.show.console_writer import lines_of
from preflight.show.isolation import isolation_section
from preflight.show.text import Style
from tests.reports import node_facts, report_of


def group(*nodes: int, observed: GroupOutcome = GroupOutcome.OK, local_rank: int = -1) -> GroupTrial:
    works = observed is not GroupOutcome.DEAD
    speed = 9.5 if works else Gap("it did not work")
    return GroupTrial(nodes, observed, Outcome.OK if works else Outcome.HANG, "", speed, local_rank)


def page(isolation: Isolation, nodes: int) -> str:
    facts = tuple(replace(node_facts(), host=f"n{i:02}") for i in range(nodes))
    return " ".join(
        "\n".join(lines_of(isolation_section(report_of(nodes=facts, isolation=isolation)), Style())).split()
    )


def test_nothing_is_shown_where_no_groups_were_tried() -> None:
    assert isolation_section(report_of()) == []


def test_few_groups_are_shown_each_and_then_what_single_ranks_did() -> None:
    rounds = (IsolationRound("neighbours", (group(0, 1), group(2, 3, observed=GroupOutcome.DEAD)), 1.0),)
    singles = (group(3, 0, local_rank=0), group(3, 0, observed=GroupOutcome.DEAD, local_rank=1))
    shown = page(replace(NO_ISOLATION, why="the 4 nodes fail together", candidate="default", rounds=rounds,
                         rank_by_rank=singles, dead=(3,)), 4)  # fmt: skip
    assert "the 4 nodes fail together (settings: default)" in shown
    assert "round 1 neighbours: n00 + n01 worked (9.5 GB/s), n02 + n03 failed" in shown
    assert "local ranks of n03 with those of n00: 0 worked, 1 failed" in shown


def test_of_many_groups_only_those_that_failed_are_named() -> None:
    groups = tuple(
        group(i, i + 1, observed=GroupOutcome.DEAD if i < 20 else GroupOutcome.OK) for i in range(0, 1024, 2)
    )
    shown = page(
        replace(NO_ISOLATION, why="w", rounds=(IsolationRound("neighbours", groups, 1.0),), ended_because="t"), 1024
    )
    assert "502 of 512 groups worked, n00 + n01 failed" in shown
    assert "6 more" in shown
    assert "No node is named, because t." in shown
    assert len(shown) < 400


def test_each_interface_of_a_bad_node_is_shown_with_what_good_nodes_had_over_it() -> None:
    rounds = (IsolationRound("neighbours", (group(0, 1),), 1.0),)
    failed = RouteTrial(
        RouteKind.NETIF, "eth0", "ens3", group(3, 0, observed=GroupOutcome.DEAD, local_rank=0), group(1, 2)
    )
    worked = RouteTrial(RouteKind.PORT, "mlx5_0:1", "mlx5_0:1", group(3, 0, local_rank=1), Gap("nobody could"))
    shown = page(replace(NO_ISOLATION, why="w", rounds=rounds, dead=(3,), by_route=(failed, worked)), 4)
    told = "n03 with n00: eth0 to ens3 failed [n01 + n02 worked (9.5 GB/s)], mlx5_0:1 worked (9.5 GB/s)"
    assert f"by interface {told}" in shown


def test_a_record_of_before_ways_were_tried_still_loads() -> None:
    kept = encode(NO_ISOLATION)
    del kept["by_way"]
    assert decode(Isolation, kept) == NO_ISOLATION
