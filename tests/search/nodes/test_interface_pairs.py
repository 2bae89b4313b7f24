"""Which address each node tries from which interface."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from preflight.model.facts import Gap, NetifKind
from preflight.model.network_survey import NodeOffers
from preflight.search.nodes.interface_choice import (
    FULL_MATRIX_NODES,
    MEETING,
    RANDOM_PEERS,
    groups,
    offers_of,
    plan_paths,
)
from tests.node_facts import LO, netif
from tests.search.ways import nodes, offer


def test_what_sockets_can_use_is_offered_physical_first_and_ipv4_before_ipv6() -> None:
    docker = netif("docker0", kind=NetifKind.CONTAINER, addresses=("172.17.0.1",))
    down = netif("eth9", is_up=False)
    both = netif("eth1", addresses=("10.0.0.9", "fd00::9", "fe80::9"))
    local = netif("eth2", addresses=("fe80::2",))
    found = offers_of((LO, docker, down, both, local))
    assert [(each.netif, each.address) for each in found] == [("eth1", "10.0.0.9"), ("docker0", "172.17.0.1")]
    assert offers_of(Gap("denied")) == ()


def test_interfaces_belong_together_by_network_by_name_and_as_the_meeting_had_them() -> None:
    listed = [
        NodeOffers(0, "a", (offer("ens3", "10.1.0.1"), offer("ib0", "10.2.0.1"))),
        NodeOffers(1, "b", (offer("enp1s0", "10.1.0.2"), offer("ib0", "10.3.0.2"))),
    ]
    assert groups(listed, {0: "ens3", 1: "ib0"}) == {
        "subnet 10.1.0.0/24": {0: "ens3", 1: "enp1s0"},
        "name ib0": {0: "ib0", 1: "ib0"},
        MEETING: {0: "ens3", 1: "ib0"},
    }


def test_an_address_at_which_nothing_could_listen_is_tried_by_nobody() -> None:
    listed = [NodeOffers(k, f"n{k}", (offer("eth0", f"10.1.0.{k + 1}", port=k * 4000),)) for k in range(3)]
    assert plan_paths(listed, {}, "x")[0] == ()
    assert [task.to_node for task in plan_paths(listed, {}, "x")[1]] == [2]


@settings(deadline=None, max_examples=40)
@given(st.integers(2, FULL_MATRIX_NODES), st.integers(1, 4))
def test_up_to_16_nodes_everybody_tries_everybody_from_every_interface(count: int, netifs: int) -> None:
    names = [f"eth{i}" for i in range(netifs)]
    planned = plan_paths(nodes(count, *names), {}, "x")
    for rank, tasks in planned.items():
        assert {(task.netif, task.to_node) for task in tasks} == {
            (name, other) for name in names for other in range(count) if other != rank
        }


@settings(deadline=None, max_examples=40)
@given(st.integers(FULL_MATRIX_NODES + 1, 120), st.text(max_size=8))
def test_on_many_nodes_each_tries_few_is_tried_back_and_the_ring_is_closed(count: int, run_id: str) -> None:
    planned = plan_paths(nodes(count, "eth0"), {}, run_id)
    calls = {(rank, task.to_node) for rank, tasks in planned.items() for task in tasks}
    assert all((there, here) in calls for here, there in calls), "both directions"
    assert all((rank, (rank + 1) % count) in calls for rank in range(count))
    assert all(here != there for here, there in calls)
    assert len(calls) <= 2 * count * (1 + RANDOM_PEERS)
    assert min(Counter(here for here, _ in calls).values()) >= RANDOM_PEERS
    assert planned == plan_paths(nodes(count, "eth0"), {}, run_id), "the same run gives the same plan"
