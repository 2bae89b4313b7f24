from __future__ import annotations

import pytest

from preflight.judge.run.world_size_nodes_differ import nodes_differ
from preflight.model.finding import Severity
from tests.judge.findings import found, only
from tests.node_facts import case, netif, node
from tests.search.nodes.test_differences import with_nccl


@pytest.mark.parametrize(("backend", "severity"), [("nccl", Severity.FAIL), ("gloo", Severity.WARN)])
def test_a_node_with_another_nccl_is_named(backend: str, severity: Severity) -> None:
    nodes = (with_nccl("a", "2.27.5"), with_nccl("b", "2.27.5"), with_nccl("c", "2.21.5"))
    finding = only(found(nodes_differ, case(nodes=nodes, backend=backend)))
    assert (finding.severity, finding.subject) == (severity, "NCCL on c")
    assert "2.21.5 on c" in finding.evidence[1].value


def test_what_may_differ_and_one_node_are_silent() -> None:
    assert found(nodes_differ, case(nodes=(node(host="a", netifs=(netif("ens3"),)), node(host="b")))) == ()
    assert found(nodes_differ, case()) == ()
