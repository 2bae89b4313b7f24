"""A node that is not what the policy names fails, and nothing is expected without one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from preflight.judge.check import Case, run_checks
from preflight.judge.expectations import is_driver
from preflight.judge.node.policy_expectation import policy_expectation
from preflight.judge.verdict import Decision, decide
from preflight.model.facts import Gap, NodeFacts
from preflight.model.gpu import Mode
from preflight.model.policy import Policy
from preflight.model.report import NodeVerdict, Verdict
from tests.gpus import gpu
from tests.judge.findings import applies_not
from tests.node_facts import advice, case, gpu_node
from tests.node_facts import node as plain_node
from tests.topology import port

TODAY = "2026-11-21"


def expecting(node: NodeFacts, **expect: object) -> list[str]:
    policy = Policy("site.toml", TODAY, expect=expect)
    asked: Case = replace(case(), policy=policy)
    return [f"{each.subject}: {each.problem}" for each in policy_expectation.judge(node, asked)]


def test_a_node_that_is_not_as_expected_fails_and_says_both() -> None:
    node = gpu_node(4)
    assert expecting(node, gpu_count=4) == []
    assert "4, but the policy expects 8" in expecting(node, gpu_count=8)[0]
    assert len(expecting(node, gpu_model="no such GPU")) == 4
    assert applies_not(policy_expectation, case()) == "no policy has expectations for this node"


def decided(node: NodeFacts, accept: bool, **expect: object) -> Decision:
    """Return what `preflight check --policy` answers on the CPU path for a node whose trials all work."""
    policy = Policy("site.toml", TODAY, expect=expect)
    asked = replace(case(nodes=(node,)), policy=policy)
    findings, skipped, _ = run_checks((policy_expectation,), asked)
    return decide(asked, findings, skipped, asked.trials, advice(), (), strict=False, accept=accept, cpu_path=True)


NO_BUS = Gap("no /sys")


@pytest.mark.parametrize(
    ("facts", "expect", "verdict"),
    [
        ({}, {"gpu_count": 8}, (Verdict.NOT_READY, 1)),  # no NVML and an empty bus: contradicted
        ({"nvidia_pci": NO_BUS}, {"gpu_count": 8}, (Verdict.UNKNOWN, 3)),
        ({}, {"gpu_count": 0}, (Verdict.UNKNOWN, 3)),
        ({}, {"gpu_model": "H100"}, (Verdict.NOT_READY, 1)),
        ({}, {"driver": ">=580"}, (Verdict.UNKNOWN, 3)),
        ({"nics": NO_BUS}, {"nic_count": 8}, (Verdict.UNKNOWN, 3)),
        ({"hca_ports": NO_BUS}, {"active_ports": 8}, (Verdict.UNKNOWN, 3)),
        ({}, {"active_ports": 8}, (Verdict.NOT_READY, 1)),
        ({}, {"active_ports": 0}, (Verdict.READY, 0)),
        ({"hca_ports": (port(),)}, {"port_rate": 400.0}, (Verdict.READY, 0)),
        ({"hca_ports": (port(rate_gbit_s=200.0),)}, {"port_rate": 400.0}, (Verdict.NOT_READY, 1)),
        ({"nvidia_pci": NO_BUS}, {"ecc": True}, (Verdict.UNKNOWN, 3)),
        ({"gpus": (gpu(0),)}, {"ecc": True, "mig": False}, (Verdict.READY, 0)),
        ({"gpus": (gpu(0, ecc_mode=Mode.DISABLED),)}, {"ecc": True}, (Verdict.NOT_READY, 1)),
        ({"gpus": (gpu(0, mig_mode=Mode.ENABLED),)}, {"mig": False}, (Verdict.NOT_READY, 1)),
        ({"gpus": (gpu(0, ecc_mode=Gap("the call hangs")),)}, {"ecc": True}, (Verdict.UNKNOWN, 3)),
    ],
)
def test_an_expectation_decides_or_says_that_it_cant(
    facts: dict[str, object], expect: dict[str, object], verdict: tuple[Verdict, int]
) -> None:
    told = decided(plain_node(**facts), False, **expect)
    assert (told.verdict, told.exit_code) == verdict


@pytest.mark.parametrize(
    ("facts", "expect", "node_verdict"),
    [
        ({}, {"gpu_count": 8}, (NodeVerdict.REJECT, 1)),
        ({"nvidia_pci": NO_BUS}, {"gpu_count": 8}, (NodeVerdict.UNKNOWN, 3)),
        ({}, {"active_ports": 0}, (NodeVerdict.UNKNOWN, 3)),  # met, and no GPU was tested
    ],
)
def test_without_a_gpu_only_a_contradicted_expectation_rejects_the_node(
    facts: dict[str, object], expect: dict[str, object], node_verdict: tuple[NodeVerdict, int]
) -> None:
    told = decided(plain_node(**facts), True, **expect)
    assert (told.node_verdict, told.exit_code) == node_verdict


def test_gpus_that_cant_be_read_keep_no_other_expectation_from_being_decided() -> None:
    node = plain_node(nvidia_pci=NO_BUS)
    policy = Policy("site.toml", TODAY, expect={"gpu_count": 8, "nic_count": 8})
    findings, (skip,), _ = run_checks((policy_expectation,), replace(case(nodes=(node,)), policy=policy))
    assert [each.subject for each in findings] == ["node1 RDMA adapters"]
    assert skip.reason.startswith("the policy's expectation can't be tested: gpu_count: ")


@pytest.mark.parametrize(
    ("version", "wanted", "fits"),
    [("580.95.05", ">=580.65", True), ("570.1", ">=580", False), ("580.95.05", "580.95", False), ("5.1", "5.1", True)],
)
def test_a_driver_is_compared_by_its_numbers(version: str, wanted: str, fits: bool) -> None:
    assert is_driver(version, wanted) is fits
