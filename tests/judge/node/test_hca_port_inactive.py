from __future__ import annotations

from typing import Any

import pytest

from preflight.judge.node.hca_rdma_roce import hca_port_inactive, hca_siblings
from preflight.model.facts import NodeFacts
from preflight.model.finding import Severity
from preflight.model.hca import PhysState, PortState
from preflight.model.policy import Policy
from tests.judge.findings import applies_not, on_gpus, only
from tests.node_facts import gpu_case, gpu_node
from tests.topology import nic, port


def rails(*states: PortState, **overrides: Any) -> NodeFacts:
    names = [f"mlx5_{i}" for i in range(len(states))]
    ports = []
    for name, state in zip(names, states, strict=True):
        down = {} if state is PortState.ACTIVE else {"state": state, "phys_state": PhysState.POLLING, **overrides}
        ports.append(port(name, **down))
    return gpu_node(nics=tuple(map(nic, names)), hca_ports=tuple(ports))


UP, DOWN = PortState.ACTIVE, PortState.DOWN


def test_a_port_that_all_its_siblings_have_is_missing() -> None:
    finding = only(on_gpus(hca_port_inactive, rails(UP, UP, DOWN, UP)))
    assert (finding.severity, finding.subject) == (Severity.WARN, "node1 mlx5_2:1")
    assert on_gpus(hca_siblings, rails(UP, UP, DOWN, UP)) == (), "told once"


@pytest.mark.parametrize(
    "node",
    [
        rails(UP, UP, DOWN),
        rails(UP, UP, UP, DOWN, DOWN),
        rails(UP, UP, UP, DOWN, phys_state=PhysState.DISABLED),
        rails(UP, UP, UP, UP),
    ],
    ids=["two siblings", "two are down", "switched off", "all up"],
)
def test_where_it_may_be_meant_no_port_is_missing(node: NodeFacts) -> None:
    assert on_gpus(hca_port_inactive, node) == ()


def test_a_policy_that_counts_active_ports_decides_instead() -> None:
    policy = Policy("site.toml", "2026-11-22", expect={"active_ports": 3})
    case = gpu_case(nodes=(rails(UP, UP, DOWN, UP),), policy=policy)
    assert "policy" in applies_not(hca_port_inactive, case)
