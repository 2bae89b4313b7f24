"""Data that takes a slower way than the links between the GPUs allow."""

from __future__ import annotations

import pytest

from preflight.judge.check import run_checks
from preflight.judge.run.transport_silent_fallback_nvls import transport_below_links
from preflight.model.facts import NodeFacts
from preflight.model.finding import Finding, Severity
from preflight.model.trial import Outcome, TrialResult
from tests.node_facts import gpu_case, gpu_node, trial
from tests.topology import pcie_node


def judged(node: NodeFacts, *ways: str, result: TrialResult | None = None) -> list[Finding]:
    tried = result or trial(transport=ways)
    return list(run_checks((transport_below_links,), gpu_case(tried, nodes=(node,), gpus=(0, 1))).findings)


@pytest.mark.parametrize("node", [gpu_node(2), pcie_node(("PIX",), 2)])
def test_shared_memory_beside_nvlink_or_a_common_switch_warns(node: NodeFacts) -> None:
    (finding,) = judged(node, "0>1 via SHM/direct/direct", "1>0 via SHM/direct/direct", "network Socket")
    assert finding.severity is Severity.WARN
    assert "1 pair of ranks went over SHM" in finding.problem
    assert finding.subject == "ranks 0, 1"


def test_shared_memory_between_sockets_is_nccls_own_choice() -> None:
    assert judged(pcie_node(("SYS",), 2), "0>1 via SHM/direct/direct") == []
    assert judged(pcie_node(("NODE",), 2), "0>1 [send] via NET/IB/0/GDRDMA", "0>1 via NET/IB/0/GDRDMA") == []


def test_sockets_inside_a_node_are_always_below_its_links() -> None:
    (finding,) = judged(pcie_node(("SYS",), 2), "0>1 via NET/Socket/0")
    assert "NET/Socket" in finding.problem
    assert "--ipc=host" in finding.fix


def test_peer_copies_an_unknown_way_and_a_failed_default_say_nothing() -> None:
    assert judged(gpu_node(2), "0>1 via P2P/CUMEM/read", "NVLS") == []
    assert judged(gpu_node(2)) == []
    failed = trial(outcome=Outcome.HANG, transport=("0>1 via SHM/direct",))
    assert judged(gpu_node(2), result=failed) == []


def test_a_rank_that_has_no_gpu_in_the_facts_breaks_nothing() -> None:
    assert judged(gpu_node(2), "4>9 via SHM/direct") == []
