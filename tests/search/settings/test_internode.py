"""What is worth a trial only between nodes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from preflight.model.facts import NodeFacts
from preflight.model.gap import Gap
from preflight.model.hca import HcaPort, PhysState, PortState
from preflight.model.network_survey import NetifSet, NodeOffers, PathEnd
from preflight.search.nodes.joint_plan import MEETING_NETIF, REACHING_NETIF, shared_candidates
from preflight.search.settings.internode import between_nodes
from tests.node_facts import netif, node
from tests.search.nodes.test_joint_plan import solo
from tests.search.ways import between, nodes, offer


def port(hca: str, state: PortState = PortState.ACTIVE, rate: float = 400.0) -> HcaPort:
    nothing = Gap("not read")
    return HcaPort(hca, 1, state, PhysState.LINK_UP, rate, "InfiniBand", 1, 1, nothing, nothing, nothing)


def planned(*facts: NodeFacts, chosen: NetifSet | None = None, dialect: str = "nccl") -> dict[str, str]:
    """Return what is tried also beside a default that works."""
    nodes_of = {k: solo(f"n{k}", facts=each, dialect=dialect) for k, each in enumerate(facts)}
    wanted = [each for each in between_nodes(nodes_of, chosen) if not each.only_cures]
    return {name: value for each in wanted for name, value in each.env}


def chosen_at(speed: Any) -> NetifSet:
    return NetifSet("subnet x", ((0, "eth0"), (1, "eth0")), "", speed, True)


PLAIN = node(netifs=(netif(addresses=("10.0.0.5",)),), hca_ports=())


def test_plain_ethernet_needs_nothing() -> None:
    assert planned(PLAIN, PLAIN, chosen=chosen_at(10_000)) == {}


def test_gloo_reads_none_of_it() -> None:
    rails = replace(PLAIN, hca_ports=(port("mlx5_0"), port("mlx5_1")))
    assert planned(rails, rails, dialect="gloo") == {}


def test_rails_are_kept_apart_and_hashed_paths_spread() -> None:
    rails = replace(PLAIN, hca_ports=(port("mlx5_0"), port("mlx5_1")))
    assert planned(rails, rails) == {"NCCL_CROSS_NIC": "0", "NCCL_IB_QPS_PER_CONNECTION": "4"}


def test_an_adapter_that_one_node_lacks_or_that_is_slow_is_left_out_by_exact_name() -> None:
    whole = replace(PLAIN, hca_ports=(port("mlx5_0"), port("mlx5_1")))
    broken = replace(PLAIN, hca_ports=(port("mlx5_0"), port("mlx5_1", PortState.DOWN)))
    assert planned(whole, broken)["NCCL_IB_HCA"] == "=mlx5_0:1"
    slow = replace(PLAIN, hca_ports=(port("mlx5_0"), port("mlx5_1", rate=100.0)))
    assert planned(slow, slow)["NCCL_IB_HCA"] == "=mlx5_0:1"


def test_fast_tcp_gets_more_threads_and_sockets() -> None:
    found = planned(PLAIN, PLAIN, chosen=chosen_at(25_000))
    assert found == {"NCCL_SOCKET_NTHREADS": "4", "NCCL_NSOCKS_PERTHREAD": "4"}
    assert planned(PLAIN, PLAIN, chosen=chosen_at(Gap("not known"))) == {}


def test_ipv6_beside_ipv4_is_tried_without() -> None:
    both = node(netifs=(netif(addresses=("10.0.0.5", "fd00::5")),), hca_ports=())
    assert planned(PLAIN, both) == {"NCCL_SOCKET_FAMILY": "AF_INET"}


def test_what_depends_on_the_switches_is_never_guessed() -> None:
    rails = replace(PLAIN, hca_ports=(port("mlx5_0"), port("mlx5_1", rate=100.0)))
    assert not {"NCCL_IB_TC", "NCCL_IB_SL", "NCCL_IB_GID_INDEX"} & set(planned(rails, rails, chosen=chosen_at(100_000)))


def test_the_way_that_reaches_all_is_tried_before_the_meetings_and_each_node_sets_its_own() -> None:
    listed = [
        NodeOffers(0, "a", (offer("ens3", "10.1.0.1"), offer("eth0", "10.2.0.1", speed_mbit_s=100))),
        NodeOffers(1, "b", (offer("enp1s0", "10.1.0.2"), offer("eth0", "10.2.0.2", speed_mbit_s=100))),
    ]
    both = {0: solo("a", netif="eth0"), 1: solo("b", netif="eth0")}
    found = {s.candidate.name: s for s in shared_candidates(both, between=between(listed, lambda _: PathEnd.OK))}
    assert list(found) == ["default", REACHING_NETIF, MEETING_NETIF]
    assert dict(found[REACHING_NETIF].env_of[1])["NCCL_SOCKET_IFNAME"] == "=enp1s0"
    alike = between(nodes(2, "eth0"), lambda _: PathEnd.OK)
    assert [s.candidate.name for s in shared_candidates(both, between=alike)] == ["default", REACHING_NETIF]
    nothing = between(nodes(2, "eth0"), lambda _: PathEnd.DROPPED)
    assert [s.candidate.name for s in shared_candidates(both, between=nothing)] == ["default", MEETING_NETIF]
