"""Three nodes of which one is bad: small groups name it, and every node says the same.

Which ranks misbehave is said by their number in the group: alone the bad node's are 0 and 1, in a pair 2 and 3, and
among all 4 and 5. So it works alone and fails with whomever it meets.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import pytest

from tests.command import Command
from tests.netns import can_make_netns, make_nodes, second_network
from tests.nodes.cluster import Cluster, Ended

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300), pytest.mark.heavy(4)]
BACKEND = ("--backend", "simnccl@simnccl", "--deadline", "150")


@pytest.fixture(autouse=True)
def _namespaces(need: Callable[[str, bool, str], None]) -> None:
    need("netns", can_make_netns(), "network namespaces need root and iproute2")


@pytest.fixture
def three(command: Command) -> Iterator[Cluster]:
    with make_nodes(3) as nodes:
        cluster = Cluster(command, nodes)
        yield cluster
        cluster.end()


def run(cluster: Cluster, rules: str, *arguments: str) -> dict[int, Ended]:
    """Run all three, of which the last has these faults."""
    for number in range(3):
        cluster.start(number, *BACKEND, *arguments, env={"SIMNCCL": rules} if number == 2 else {})
    return cluster.wait(200)


def test_a_node_that_hangs_with_others_is_named_dead_by_all(three: Cluster) -> None:
    ended = run(three, "hang:rank=2,stage=first;hang:rank=4,stage=first", "--stage-limit", "6")
    assert {each.code for each in ended.values()} == {1}, ended[0].page
    assert all(each.took_s < 150 for each in ended.values())
    for each in ended.values():
        assert not each.report["problems"]
        (finding,) = [f for f in each.report["findings"] if f["check"] == "node-at-fault"]
        assert (finding["severity"], finding["class"], finding["subject"]) == ("fail", "fabric", "node2")
        assert (
            "node2 is dead: it fails with node0 and node1, although those nodes work with others" in finding["problem"]
        )
        isolation = each.report["isolation"]
        assert (isolation["dead"], isolation["slow"], isolation["unresolved"]) == ([2], [], [])
        groups = [(tuple(g["nodes"]), g["seen"]) for done in isolation["rounds"] for g in done["groups"]]
        assert groups == [((0, 1), "ok"), ((0, 2), "dead"), ((1, 2), "dead")]
        assert {(g["local_rank"], g["seen"]) for g in isolation["rank_by_rank"]} == {(0, "ok"), (1, "ok")}
    page = " ".join(ended[1].page.split())
    assert "Which node is at fault" in page
    assert "node2 is dead" in page


def test_a_node_that_slows_all_down_is_named_slow_and_not_dead(three: Cluster) -> None:
    ended = run(three, "slow:rank=2,factor=30;slow:rank=4,factor=30", "--profile", "quick")
    assert {each.code for each in ended.values()} == {1}, ended[0].page
    for each in ended.values():
        (finding,) = [f for f in each.report["findings"] if f["check"] == "node-at-fault"]
        assert (finding["severity"], finding["subject"]) == ("fail", "node2")
        assert "node2 is slow" in finding["problem"]
        isolation = each.report["isolation"]
        assert (isolation["dead"], isolation["slow"]) == ([], [2])


@contextlib.contextmanager
def another_network(cluster: Cluster) -> Iterator[None]:
    """Give each node eth1, through which node1 does not reach node2: all choose eth0, whatever was measured."""
    with second_network(list(cluster.nodes)):
        cluster.nodes[1].ip("route", "add", "blackhole", "10.80.0.3/32")
        yield


def at_fault(ended: Ended) -> str:
    (finding,) = [f for f in ended.report["findings"] if f["check"] == "node-at-fault"]
    assert finding["subject"] == "node2"
    return str(finding["problem"])


def ways(ended: Ended) -> set[tuple[str, int, str]]:
    by_route = ended.report["isolation"]["by_way"]
    return {(way["own"], way["trial"]["local_rank"], way["trial"]["seen"]) for way in by_route}


def test_the_one_interface_through_which_a_node_fails_is_named(three: Cluster) -> None:
    rules = "hang:rank=2,stage=first;hang:rank=4,stage=first;hang:rank=1,stage=first,when=GLOO_SOCKET_IFNAME=eth0"
    with another_network(three):
        ended = run(three, rules, "--stage-limit", "6")
    assert {each.code for each in ended.values()} == {1}, ended[0].page
    for each in ended.values():
        assert ways(each) == {("eth0", 0, "dead"), ("eth1", 1, "ok")}, "both at once, each by a rank of its own"
        assert at_fault(each).endswith(
            "over eth1 alone the node works with node0; over eth0 alone the node fails, so that interface, its cable "
            "or its switch port is at fault"
        )
    assert "node2 with node0: eth0 failed, eth1 worked" in " ".join(ended[1].page.split())


def test_nodes_of_one_rank_try_their_interfaces_one_after_the_other(three: Cluster) -> None:
    broken = "stage=first,unless=GLOO_SOCKET_IFNAME=eth1"
    with another_network(three):
        ended = run(three, f"hang:rank=1,{broken};hang:rank=2,{broken}", "--stage-limit", "6", "--nproc", "1")
    assert {each.code for each in ended.values()} == {1}, ended[0].page
    for each in ended.values():
        assert not each.report["isolation"]["rank_by_rank"]
        assert ways(each) == {("eth0", 0, "dead"), ("eth1", 0, "ok")}
        assert "over eth0 alone the node fails, so that interface" in at_fault(each)
