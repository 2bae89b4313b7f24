"""PFC, ECN and DSCP of RoCE ports: alike on a node, and a priority with flow control for NCCL's traffic."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from preflight.judge.check import run_checks
from preflight.judge.node.roce_traffic_classes import roce_traffic_classes
from preflight.model.facts import Gap, NcclConfEntry, NodeFacts, known
from preflight.model.finding import Severity
from preflight.model.hca import NOT_FORCED, DscpPriority, NicKind, PortState, TrafficClasses
from tests.judge.findings import applies_not, on_gpus, only, skips
from tests.node_facts import env, gpu_case, gpu_node
from tests.topology import nic, port, roce_port

USUAL = tuple(DscpPriority(dscp, dscp >> 3) for dscp in range(64))
LOSSLESS = TrafficClasses((3,), USUAL, (3,), NOT_FORCED)


def node_with(*classes: TrafficClasses | Gap, **overrides: Any) -> NodeFacts:
    """Return a node with a RoCE port for each of these configurations."""
    return gpu_node(
        nics=tuple(nic(f"mlx5_{i}", kind=NicKind.ROCE) for i in range(len(classes))),
        hca_ports=tuple(
            roce_port(f"mlx5_{i}", traffic_classes=each if isinstance(each, Gap) else (each,))
            for i, each in enumerate(classes)
        ),
        **overrides,
    )


@pytest.mark.parametrize(
    "other",
    [
        replace(LOSSLESS, pfc_priorities=()),
        replace(LOSSLESS, by_dscp=()),
        replace(LOSSLESS, ecn_priorities=()),
        replace(LOSSLESS, forced=104),
    ],
    ids=["pfc", "trust", "ecn", "forced"],
)
def test_a_port_that_is_configured_unlike_the_others_is_a_warning(other: TrafficClasses) -> None:
    set_to = env(NCCL_IB_TC="104")
    node = node_with(LOSSLESS, other, LOSSLESS, LOSSLESS, environment=set_to)
    finding = only(on_gpus(roce_traffic_classes, node))
    assert finding.severity is Severity.WARN
    assert finding.subject.endswith("mlx5_1:1") and "mlx5_0:1, mlx5_2:1, mlx5_3:1" in finding.problem
    few = only(on_gpus(roce_traffic_classes, node_with(LOSSLESS, other, LOSSLESS, environment=set_to)))
    assert few.severity is Severity.INFO


def test_tables_that_name_some_dscps_are_compared_row_by_row() -> None:
    usual = replace(LOSSLESS, by_dscp=(DscpPriority(24, 3), DscpPriority(26, 3)))
    other = replace(LOSSLESS, by_dscp=(DscpPriority(24, 3), DscpPriority(46, 5)))
    node = node_with(usual, usual, usual, other, environment=env(NCCL_IB_TC="96"))
    finding = only(on_gpus(roce_traffic_classes, node))
    assert finding.subject.endswith("mlx5_3:1") and usual.text != other.text


def test_two_ports_of_a_storage_network_and_an_unread_ecn_are_no_warning() -> None:
    lossy, unread = replace(LOSSLESS, pfc_priorities=()), replace(LOSSLESS, ecn_priorities=Gap("no such file"))
    node = node_with(*[LOSSLESS] * 8, lossy, lossy, environment=env(NCCL_IB_TC="104"))
    assert only(on_gpus(roce_traffic_classes, node)).severity is Severity.INFO
    assert on_gpus(roce_traffic_classes, node_with(*[LOSSLESS] * 4, unread, environment=env(NCCL_IB_TC="104"))) == ()


def test_ports_of_another_rate_are_of_another_network() -> None:
    node = node_with(*[LOSSLESS] * 4, environment=env(NCCL_IB_TC="104"))
    slow = roce_port("mlx5_9", traffic_classes=(replace(LOSSLESS, pfc_priorities=()),), rate_gbit_s=25.0)
    both = replace(node, nics=(*known(node.nics), nic("mlx5_9")), hca_ports=(*known(node.hca_ports), slow))
    assert on_gpus(roce_traffic_classes, both) == ()


def test_traffic_without_flow_control_is_a_note_that_names_the_variable() -> None:
    finding = only(on_gpus(roce_traffic_classes, node_with(LOSSLESS, LOSSLESS)))
    assert finding.severity is Severity.INFO and "NCCL_IB_TC" in finding.fix
    assert "traffic class 0 has priority 0, PFC is on for 3" in finding.problem
    assert finding.subject.endswith("mlx5_0:1, mlx5_1:1")


@pytest.mark.parametrize(
    "node",
    [
        node_with(LOSSLESS, environment=env(NCCL_IB_TC="104")),
        node_with(LOSSLESS, nccl_conf=(NcclConfEntry("/etc/nccl.conf", "NCCL_IB_TC", "104"),)),
        node_with(replace(LOSSLESS, forced=106)),
        node_with(replace(LOSSLESS, pfc_priorities=())),
        node_with(replace(LOSSLESS, by_dscp=())),
        node_with(replace(LOSSLESS, forced=Gap("not readable"))),
        node_with(LOSSLESS, environment=env(NCCL_IB_TC="none")),
        node_with(LOSSLESS, environment=env(NCCL_IB_TC="0150")),
    ],
    ids=["set", "in a file", "forced", "no PFC", "no trust in DSCP", "unknown force", "no number", "octal"],
)
def test_traffic_with_flow_control_and_what_is_not_known_cause_no_note(node: NodeFacts) -> None:
    assert on_gpus(roce_traffic_classes, node) == ()


def test_a_forced_class_counts_more_than_the_variable() -> None:
    node = node_with(replace(LOSSLESS, forced=0), environment=env(NCCL_IB_TC="104"))
    assert "traffic class 0" in only(on_gpus(roce_traffic_classes, node)).problem


def test_infiniband_and_ports_that_are_down_have_nothing_to_check() -> None:
    down = roce_port(state=PortState.DOWN, traffic_classes=(LOSSLESS,))
    for ports in ((port(),), (down,)):
        assert applies_not(roce_traffic_classes, gpu_case(nodes=(gpu_node(nics=(nic(),), hca_ports=ports),)))


def test_classes_that_nobody_could_read_are_not_called_fine() -> None:
    gap = Gap("traffic classes of eth1: Operation not supported")
    assert "not supported" in skips(roce_traffic_classes, gpu_case(nodes=(node_with(gap),)))[0].reason
    partly = gpu_case(nodes=(node_with(LOSSLESS, replace(LOSSLESS, pfc_priorities=()), gap),))
    findings, skipped, _ = run_checks((roce_traffic_classes,), partly)
    assert [each.severity for each in findings] == [Severity.INFO, Severity.INFO] and skipped
