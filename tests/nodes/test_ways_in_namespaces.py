"""Which interface several nodes choose, and what each thing that is in the way is called, in network namespaces."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.command import Command
from tests.netns import Netns, can_make_netns, make_nodes, second_network
from tests.nodes.cluster import PORT, Cluster, Ended

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240), pytest.mark.heavy(4)]
BY_ADDRESS = ("--rdzv-endpoint", f"10.79.0.1:{PORT}")
LIMITS = ("--stage-limit", "4", "--deadline", "90")


@pytest.fixture(autouse=True)
def _namespaces(need: Callable[[str, bool, str], None]) -> None:
    need("netns", can_make_netns(), "network namespaces need root and iproute2")


@pytest.fixture
def run(command: Command) -> Iterator[Callable[..., dict[int, Ended]]]:
    """Run the command on these nodes and see that they agree."""
    clusters: list[Cluster] = []

    def _run(nodes: list[Netns], *arguments: str) -> dict[int, Ended]:
        clusters.append(Cluster(command, nodes))
        ended = clusters[-1].run(*LIMITS, *arguments)
        assert len({each.code for each in ended.values()}) == 1, ended[0].page + ended[1].page
        assert all(each.took_s < 90 for each in ended.values())
        assert ended[0].report["findings"] == ended[1].report["findings"]
        return ended

    yield _run
    for cluster in clusters:
        cluster.end()


def found(ended: Ended, check: str) -> list[dict[str, Any]]:
    return [finding for finding in ended.report["findings"] if finding["check"] == check]


def chosen(ended: Ended) -> dict[str, str]:
    between = ended.report["between"]
    return next((each["netifs"] for each in between["sets"] if each["name"] == between["chosen"]), {})


def set_names(nodes: list[Netns], own_address: Callable[[int], str]) -> None:
    """Have each node's own name resolve to another address, which gloo then binds to."""
    for number, node in enumerate(nodes):
        path = f"/etc/netns/{node.name}/hosts"
        with open(path, encoding="utf-8") as file:
            lines = file.read().splitlines()
        kept = [line for line in lines if not line.endswith(f" node{number}")]
        with open(path, "w", encoding="utf-8") as file:
            file.write("\n".join([*kept, f"{own_address(number)} node{number}"]) + "\n")


def test_nodes_that_reach_each_other_say_how_fast_and_set_nothing(run: Any) -> None:
    with make_nodes(2) as nodes:
        ended = run(nodes)
    assert ended[0].code == 0, ended[0].page
    assert chosen(ended[0]) == {"0": "eth0", "1": "eth0"}
    results = ended[0].report["between"]["results"]
    assert {(r["from_node"], r["to_node"], r["end"]) for r in results} == {(0, 1, "ok"), (1, 0, "ok")}
    assert all(r["gb_s"] > 0 and r["rtt_us"] > 0 for r in results)
    assert "Network paths" in ended[1].page
    assert ended[0].report["between"]["took_s"] < 10


def test_an_interface_with_the_same_address_on_each_node_that_comes_first_is_passed_by(run: Any) -> None:
    with make_nodes(2) as nodes:
        for node in nodes:
            node.add_interface("docker0", "172.17.0.1/16")
        set_names(nodes, lambda _: "172.17.0.1")
        ended = run(nodes)
    assert ended[0].code == 0, ended[0].page
    assert ended[0].report["verdict"] == "ready_with_env"
    assert chosen(ended[0]) == {"0": "eth0", "1": "eth0"}
    assert ended[1].report["advice"]["env"]["NCCL_SOCKET_IFNAME"] == "=eth0"
    (finding,) = found(ended[0], "netif-same-address")
    assert finding["subject"] == "docker0 on node0, node1"
    ends = {r["end"] for r in ended[0].report["between"]["results"] if r["netif"] == "docker0"}
    assert ends == {"itself"}


def test_names_that_differ_between_nodes_are_set_on_each(run: Any) -> None:
    with make_nodes(2, netifs=("ens3", "enp1s0")) as nodes:
        for number, node in enumerate(nodes):
            node.add_interface("dead0", f"10.5.{number}.1/24")
        set_names(nodes, lambda number: f"10.5.{number}.1")
        ended = run(nodes, *BY_ADDRESS)
    assert ended[0].code == 0, ended[0].page
    for number, name in enumerate(("ens3", "enp1s0")):
        assert ended[number].report["advice"]["env"]["GLOO_SOCKET_IFNAME"] == name


def test_a_first_interface_that_reaches_nobody_is_named_and_passed_by(run: Any) -> None:
    with make_nodes(2) as nodes:
        for number, node in enumerate(nodes):
            node.add_interface("dead0", f"10.5.{number}.1/24")
        set_names(nodes, lambda number: f"10.5.{number}.1")
        ended = run(nodes, *BY_ADDRESS)
    assert ended[0].code == 0, ended[0].page
    assert chosen(ended[0]) == {"0": "eth0", "1": "eth0"}
    (finding,) = found(ended[0], "netif-reaches-nobody")
    assert finding["subject"] == "dead0 on node0, node1"
    assert "no route" in finding["problem"]
    assert finding["severity"] == "warn", "the job as it is failed from it, and eth0 works"


def test_a_hop_that_drops_large_packets_is_named_and_another_way_is_taken(run: Any) -> None:
    with make_nodes(2) as nodes, second_network(nodes, narrow_mtu=1400):
        set_names(nodes, lambda number: f"10.80.0.{number + 1}")
        ended = run(nodes, *BY_ADDRESS)
    assert ended[0].code == 0, ended[0].page
    assert ended[0].report["verdict"] == "ready_with_env"
    assert chosen(ended[0]) == {"0": "eth0", "1": "eth0"}
    (finding,) = found(ended[0], "path-drops-large")
    assert finding["subject"] == "eth1 between node0, node1"
    assert "smaller MTU than eth1 (1500)" in finding["problem"]


def test_where_the_only_way_drops_large_packets_the_nodes_still_meet_and_say_so(run: Any) -> None:
    with make_nodes(2) as nodes, second_network(nodes, narrow_mtu=1400):
        for node in nodes:
            with open(f"/etc/netns/{node.name}/hosts", "w", encoding="utf-8") as file:
                file.write("127.0.0.1 localhost\n10.80.0.1 node0\n10.80.0.2 node1\n")
            node.ip("link", "set", "eth0", "down")
        ended = run(nodes)
    assert ended[0].code == 1, ended[0].page
    (finding,) = found(ended[0], "path-drops-large")
    assert finding["severity"] == "fail"
    assert "eth1" in finding["fix"]


def test_of_two_ways_that_work_the_faster_is_chosen(run: Any) -> None:
    with make_nodes(2) as nodes, second_network(nodes):
        for node in nodes:
            argv = [
                "tc",
                "qdisc",
                "add",
                "dev",
                "eth0",
                "root",
                "tbf",
                "rate",
                "100mbit",
                "burst",
                "64kb",
                "latency",
                "50ms",
            ]
            subprocess.run([*node.prefix, *argv], check=True)
        ended = run(nodes)
    assert ended[0].code == 0, ended[0].page
    assert chosen(ended[0]) == {"0": "eth1", "1": "eth1"}


def test_a_directory_that_all_share_is_measured_and_left_empty(run: Any, command: Command) -> None:
    shared = command.tmp_path / "shared"
    shared.mkdir()
    with make_nodes(2) as nodes:
        ended = run(nodes, "--checkpoint-dir", str(shared))
    assert ended[0].code == 0, ended[0].page
    storage = ended[0].report["between"]["storage"]
    assert [node["read_problem"] for node in storage["nodes"]] == ["", ""]
    assert storage["write_together_gb_s"] > 0
    assert list(shared.iterdir()) == [], "nothing is left there"
