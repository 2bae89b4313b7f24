"""A node at fault tries its interfaces and RDMA ports one at a time: who meets whom, over what, and what that shows."""

from __future__ import annotations

from itertools import chain, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preflight.model.gap import Gap
from preflight.model.isolation import BadPath, GroupOutcome, GroupTrial, IsolationRound, Route, RouteKind, RouteTrial
from preflight.model.trial import Outcome
from preflight.search.nodes.isolation import Isolated
from preflight.search.nodes.route_isolation import NOT_BESIDE, RouteRound, route_env, route_rounds, route_trials


def route(*names: str, kind: RouteKind = RouteKind.NETIF, broken: tuple[BadPath, ...] = ()) -> Route:
    return Route(kind, tuple(enumerate(names)), broken)


def same(name: str, nodes: int, **options: tuple[BadPath, ...]) -> Route:
    return route(*[name] * nodes, **options)  # type: ignore[arg-type]


def group(*nodes: int, speed: float | None = 10.0, outcome: Outcome = Outcome.OK, local_rank: int = -1) -> GroupTrial:
    busbw = speed if speed is not None and outcome is Outcome.OK else Gap("it did not work")
    return GroupTrial(nodes, GroupOutcome.UNTRIED, outcome, "", busbw, local_rank)


def named(nodes: int, dead: tuple[int, ...] = (), slow: tuple[int, ...] = ()) -> tuple[Isolated, list[IsolationRound]]:
    """Return the end of rounds in which all but these nodes worked."""
    good = [node for node in range(nodes) if node not in (*dead, *slow)]
    worked = tuple(group(a, b) for a, b in pairwise(good))
    return Isolated(dead, slow, (), (), ""), [IsolationRound("neighbours", worked, 1.0)]


def places(round_: RouteRound) -> list[tuple[int, int, int, str]]:
    return [(*held.nodes, held.local_rank, held.end_of(held.nodes[0])) for held in round_.pairs]


def test_each_way_is_taken_by_another_rank_all_at_once() -> None:
    (round_,) = route_rounds(*named(3, dead=(2,)), (3, 3, 3), [same(f"eth{i}", 3) for i in range(3)], 1)
    assert places(round_) == [(2, 0, 0, "eth0"), (2, 0, 1, "eth1"), (2, 0, 2, "eth2")]


def test_two_more_good_nodes_try_the_same_ways_on_the_same_ranks() -> None:
    (round_,) = route_rounds(*named(5, slow=(1,)), (2,) * 5, [same("eth0", 5), same("eth1", 5)], 1)
    assert places(round_)[2:] == [(2, 3, 0, "eth0"), (2, 3, 1, "eth1")]


def test_of_three_nodes_the_good_ones_try_the_ways_on_the_ranks_that_are_left() -> None:
    (round_,) = route_rounds(*named(3, dead=(2,)), (4,) * 3, [same("eth0", 3), same("eth1", 3)], 1)
    assert places(round_)[2:] == [(0, 1, 2, "eth0"), (0, 1, 3, "eth1")]
    (full,) = route_rounds(*named(3, dead=(2,)), (3,) * 3, [same("eth0", 3), same("eth1", 3)], 1)
    assert places(full)[2:] == [(0, 1, 2, "eth0")]


def test_with_one_rank_a_node_a_round_tries_one_way_and_no_more_rounds_are_taken_than_are_left() -> None:
    routes = [same(f"eth{i}", 3) for i in range(4)]
    tried = [places(each) for each in route_rounds(*named(3, dead=(2,)), (1, 1, 1), routes, 2)]
    assert tried == [[(2, 0, 0, "eth0")], [(2, 0, 0, "eth1")]]


def test_each_node_is_held_to_its_own_interface() -> None:
    (round_,) = route_rounds(*named(3, dead=(2,)), (2,) * 3, [route("a0", "b0", "c0"), route("a1", "b1", "c1")], 1)
    assert [(held.end_of(2), held.end_of(0)) for held in round_.accused] == [("c0", "a0"), ("c1", "a1")]


def test_one_way_alone_is_not_worth_a_round() -> None:
    assert route_rounds(*named(3, dead=(2,)), (2,) * 3, [same("eth0", 3)], 2) == ()
    twice = [same("eth0", 3), Route(RouteKind.NETIF, ((0, "eth0"), (1, "eth9"), (2, "eth0")))]
    assert route_rounds(*named(3, dead=(2,)), (2,) * 3, twice, 2) == (), "both are eth0 to eth0"


def test_a_way_that_is_broken_between_good_nodes_tells_nothing_and_one_broken_at_the_bad_one_is_tried() -> None:
    nowhere = same("docker0", 3, broken=(BadPath(0, 1), BadPath(0, 2)))
    here = same("eth0", 3, broken=(BadPath(0, 2), BadPath(1, 2)))
    (round_,) = route_rounds(*named(3, dead=(2,)), (4,) * 3, [nowhere, here, same("eth1", 3)], 1)
    assert [held.end_of(2) for held in round_.accused] == ["eth0", "eth1"]


def test_nobody_named_needs_no_round() -> None:
    assert route_rounds(*named(3), (2,) * 3, [same("eth0", 3), same("eth1", 3)], 2) == ()


@given(
    nodes=st.integers(3, 8), bad=st.sets(st.integers(0, 7), max_size=3), ranks=st.lists(st.integers(1, 4), min_size=8),
    ends=st.lists(st.sets(st.integers(0, 7), min_size=2), max_size=6), most=st.integers(0, 2),
)  # fmt: skip
def test_no_rank_is_in_two_groups_and_no_way_is_tried_twice(
    nodes: int, bad: set[int], ranks: list[int], ends: list[set[int]], most: int
) -> None:
    ranks_of = ranks[:nodes]
    routes = [
        Route(RouteKind.NETIF, tuple((node, f"eth{i}") for node in sorted(there) if node < nodes))
        for i, there in enumerate(ends)
    ]
    accused = tuple(sorted(node for node in bad if node < nodes))
    rounds = route_rounds(*named(nodes, dead=accused), ranks_of, routes, most)
    assert len(rounds) <= most
    for round_ in rounds:
        locality = [(node, held.local_rank) for held in round_.pairs for node in held.nodes]
        assert len(locality) == len(set(locality))
        assert all(held.local_rank < ranks_of[node] for held in round_.pairs for node in held.nodes)
        assert all({*held.nodes} <= {node for node, _ in held.route.ends} for held in round_.pairs)
        assert all(held.nodes[0] in accused and held.nodes[1] not in accused for held in round_.accused)
        assert not {node for held in round_.beside for node in held.nodes} & set(accused)
    tried = [(held.nodes[0], held.route) for held in chain.from_iterable(each.accused for each in rounds)]
    assert len(tried) == len(set(tried))


def shown(
    round_: RouteRound, tried: list[GroupTrial], dead: tuple[int, ...] = ()
) -> list[tuple[str, GroupOutcome, GroupOutcome]]:
    return [(each.own, each.trial.observed, each.shown) for each in route_trials(round_, tried, dead)]


def test_of_a_dead_node_the_ways_that_fail_are_told_from_those_that_work() -> None:
    (round_,) = route_rounds(*named(3, dead=(2,)), (2,) * 3, [same("eth0", 3), same("eth1", 3)], 1)
    trials = route_trials(round_, [group(2, 0, outcome=Outcome.HANG), group(2, 0, speed=0.1)], (2,))
    assert [each.trial.observed for each in trials] == [GroupOutcome.DEAD, GroupOutcome.OK]
    assert all(each.beside == NOT_BESIDE for each in trials)


def test_slow_is_told_beside_good_nodes_on_the_same_way_and_not_beside_another_way() -> None:
    (round_,) = route_rounds(*named(4, slow=(3,)), (2,) * 4, [same("ib0", 4), same("eth0", 4)], 1)
    tried = [group(3, 0, speed=2.0), group(3, 0, speed=0.1), group(1, 2, speed=10.0), group(1, 2, speed=0.12)]
    assert shown(round_, tried) == [("ib0", *[GroupOutcome.SLOW] * 2), ("eth0", *[GroupOutcome.OK] * 2)]


def test_a_port_is_not_slow_beside_a_gpu_that_may_be_nearer_to_it() -> None:
    ports = [route(*["mlx5_0:1"] * 3, kind=RouteKind.PORT), same("eth0", 3)]
    (round_,) = route_rounds(*named(3, slow=(2,)), (4,) * 3, ports, 1)
    tried = [group(2, 0, speed=4.0, local_rank=0), group(2, 0, speed=0.1, local_rank=1)]
    beside = [group(0, 1, speed=10.0, local_rank=2), group(0, 1, speed=1.0, local_rank=3)]
    assert shown(round_, tried + beside) == [
        ("mlx5_0:1", *[GroupOutcome.OK] * 2),
        ("eth0", *[GroupOutcome.SLOW] * 2),
    ]


def test_what_fails_between_good_nodes_too_proves_nothing() -> None:
    (round_,) = route_rounds(*named(4, dead=(3,)), (2,) * 4, [same("eth0", 4), same("eth1", 4)], 1)
    hung, crashed = group(3, 0, outcome=Outcome.HANG), group(1, 2, outcome=Outcome.CRASH)
    assert shown(round_, [hung, group(3, 0), crashed, group(1, 2)], (3,)) == [
        ("eth0", GroupOutcome.DEAD, GroupOutcome.UNTRIED),
        ("eth1", GroupOutcome.OK, GroupOutcome.OK),
    ]


def test_what_the_deadline_cut_was_not_tried() -> None:
    (round_,) = route_rounds(*named(3, dead=(2,)), (2,) * 3, [same("eth0", 3), same("eth1", 3)], 1)
    cut = group(2, 0, outcome=Outcome.SKIPPED)
    assert [observed for _, observed, _ in shown(round_, [cut, cut], (2,))] == [GroupOutcome.UNTRIED] * 2


@pytest.mark.parametrize("dialect", ["gloo", "nccl"])
def test_an_interface_is_all_that_a_rank_has(dialect: str) -> None:
    env = dict(route_env(RouteKind.NETIF, "eth1", dialect))
    assert (env["GLOO_SOCKET_IFNAME"], env["NCCL_SOCKET_IFNAME"]) == ("eth1", "=eth1")
    assert env.get("NCCL_NET") == ("Socket" if dialect == "nccl" else None), "else NCCL's data goes over InfiniBand"


def test_a_port_is_all_that_a_rank_has() -> None:
    assert dict(route_env(RouteKind.PORT, "mlx5_1:1", "nccl")) == {
        "NCCL_IB_DISABLE": "0", "NCCL_IB_HCA": "=mlx5_1:1", "NCCL_MNNVL_ENABLE": "0", "NCCL_NET": "IB",
    }  # fmt: skip


def test_a_trial_says_how_it_is_named_on_either_node() -> None:
    (round_,) = route_rounds(*named(3, dead=(2,)), (2,) * 3, [route("a", "b", "c"), same("d", 3)], 1)
    (first, _) = route_trials(round_, [group(2, 0), group(2, 0)], (2,))
    assert isinstance(first, RouteTrial)
    assert (first.own, first.other) == ("c", "a")
