from __future__ import annotations

import pytest

from preflight.judge.node.hca_rdma_roce import hca_port_stuck
from preflight.model.facts import Gap
from preflight.model.finding import Blame, Severity
from preflight.model.hca import PhysState, PortState
from tests.judge.findings import on_gpus, only, skips
from tests.node_facts import gpu_case, gpu_node
from tests.topology import port, roce_port


def test_an_active_port_is_fine() -> None:
    assert on_gpus(hca_port_stuck, gpu_node(hca_ports=(port(),))) == ()


@pytest.mark.parametrize("state", [PortState.INIT, PortState.ARMED])
def test_a_link_without_a_subnet_manager_fails_and_blames_the_fabric(state: PortState) -> None:
    finding = only(on_gpus(hca_port_stuck, gpu_node(hca_ports=(port(state=state, sm_lid=0),))))
    assert (finding.severity, finding.blame) == (Severity.FAIL, Blame.FABRIC)


def test_a_port_that_is_simply_down_is_none_of_its_business() -> None:
    down = port(state=PortState.DOWN, phys_state=PhysState.POLLING)
    assert on_gpus(hca_port_stuck, gpu_node(hca_ports=(down,))) == ()


def test_ethernet_and_efa_ports_have_no_subnet_manager() -> None:
    ports = (roce_port(state=PortState.INIT), port("efa_0", link_layer="Unspecified", state=PortState.INIT))
    assert on_gpus(hca_port_stuck, gpu_node(hca_ports=ports)) == ()


def test_unreadable_ports_skip_the_check() -> None:
    assert skips(hca_port_stuck, gpu_case(nodes=(gpu_node(hca_ports=Gap("/sys/class: not there")),)))
