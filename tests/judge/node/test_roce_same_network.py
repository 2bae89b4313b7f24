"""Several RoCE ports in one IPv4 network: Linux answers for any of its addresses on each, unless told not to."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from preflight.judge.node.hca_rdma_roce import roce_same_network
from preflight.model.facts import NodeFacts
from preflight.model.finding import Severity
from preflight.model.hca import NicKind, PortState
from tests.judge.findings import applies_not, on_gpus, only, skips
from tests.node_facts import gpu_case, gpu_node, netif
from tests.topology import V2, nic, roce_port

ONE, OTHER = ("10.1.0.0/16",), ("10.2.0.0/16",)


def rails(*networks: tuple[str, ...], **overrides: Any) -> NodeFacts:
    """Return a node with a RoCE port in each of these networks: mlx5_0 behind eth0, and so on."""
    places = range(len(networks))
    return gpu_node(
        nics=tuple(nic(f"mlx5_{i}", kind=NicKind.ROCE) for i in places),
        hca_ports=tuple(roce_port(f"mlx5_{i}", gids=(replace(V2, netif=f"eth{i}"),)) for i in places),
        netifs=tuple(netif(f"eth{i}", networks=networks[i], **{"arp_ignore": 0, **overrides}) for i in places),
    )


def test_two_ports_in_one_network_that_answer_for_each_other_are_a_warning() -> None:
    finding = only(on_gpus(roce_same_network, rails(ONE, ONE, OTHER)))
    assert finding.severity is Severity.WARN and "eth0, eth1" in finding.subject and "10.1.0.0/16" in finding.problem
    assert "arp_ignore=1" in finding.fix


@pytest.mark.parametrize("node", [rails(ONE, OTHER), rails(ONE, ONE, arp_ignore=1)], ids=["apart", "told"])
def test_networks_of_their_own_and_ports_that_are_told_are_fine(node: NodeFacts) -> None:
    assert on_gpus(roce_same_network, node) == ()


def test_one_port_shares_nothing_and_a_port_that_is_down_does_not_count() -> None:
    down = rails(ONE, ONE)
    ports = tuple(replace(port, state=PortState.DOWN) for port in down.hca_ports[1:])  # type: ignore[index]
    assert applies_not(roce_same_network, gpu_case(nodes=(rails(ONE),)))
    assert applies_not(roce_same_network, gpu_case(nodes=(replace(down, hca_ports=(*down.hca_ports[:1], *ports)),)))  # type: ignore[index]


def test_without_an_ipv4_address_and_by_link_local_addresses_nothing_is_shared() -> None:
    assert applies_not(roce_same_network, gpu_case(nodes=(rails((), (), addresses=("fe80::5",)),)))
    local = ("169.254.0.0/16",)
    assert on_gpus(roce_same_network, rails((*ONE, *local), (*OTHER, *local))) == ()


def test_an_interface_that_answers_for_global_addresses_of_others_counts() -> None:
    assert only(on_gpus(roce_same_network, rails(ONE, ONE, arp_ignore=3)))


def test_networks_that_nobody_read_are_not_called_apart() -> None:
    assert skips(roce_same_network, gpu_case(nodes=(rails((), ()),)))
    assert skips(roce_same_network, gpu_case(nodes=(rails(ONE, ONE, arp_ignore=-1),)))
