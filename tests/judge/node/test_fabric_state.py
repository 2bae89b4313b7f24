from __future__ import annotations

import pytest

from preflight.judge.node.nvlink_down_fabric_state import fabric_state
from preflight.model.facts import DeviceNodes
from preflight.model.finding import Blame, Severity
from preflight.model.gpu import Fabric, FabricState
from tests.gpus import NO_PAGES, gpu
from tests.judge.findings import found, on_gpus, only
from tests.node_facts import gpu_case, gpu_node


def test_registered_gpus_are_fine() -> None:
    assert on_gpus(fabric_state, gpu_node(8)) == ()


@pytest.mark.parametrize("state", [FabricState.NOT_STARTED, FabricState.IN_PROGRESS])
def test_a_registration_that_is_not_completed_fails(state: FabricState) -> None:
    finding = only(on_gpus(fabric_state, gpu_node(gpus=(gpu(0), gpu(1, fabric=Fabric(state, "", ()))))))
    assert (finding.severity, finding.blame) == (Severity.FAIL, Blame.FABRIC)
    assert "nvidia-fabricmanager" in finding.fix


def test_a_registration_that_failed_tells_why() -> None:
    failed = Fabric(FabricState.COMPLETED, "NVMLError_InsufficientResources: x", ())
    assert "InsufficientResources" in only(on_gpus(fabric_state, gpu_node(1, gpus=(gpu(0, fabric=failed),)))).problem


def test_an_unhealthy_fabric_is_a_warning() -> None:
    sick = Fabric(FabricState.COMPLETED, "", ("degraded_bandwidth", "route_unhealthy"))
    finding = only(on_gpus(fabric_state, gpu_node(1, gpus=(gpu(0, fabric=sick),))))
    assert finding.severity is Severity.WARN
    assert "degraded bandwidth, route unhealthy" in finding.problem


def test_machines_without_switches_need_no_fabric() -> None:
    solo = gpu(0, nvlinks=(), fabric=Fabric(FabricState.NOT_STARTED, "", ()))
    assert on_gpus(fabric_state, gpu_node(1, gpus=(solo,))) == ()


def test_gpus_before_hopper_are_left_alone() -> None:
    assert on_gpus(fabric_state, gpu_node(1, gpus=(gpu(0, fabric=NO_PAGES),))) == ()


@pytest.mark.parametrize(
    ("nodes", "files", "expected"),
    [
        (1, ("nvidia0",), [Severity.INFO]),
        (2, ("nvidia0",), [Severity.WARN]),
        (2, ("nvidia-caps-imex-channels", "nvidia0"), []),
    ],
)
def test_grace_nodes_of_one_fabric_need_an_imex_channel(
    nodes: int, files: tuple[str, ...], expected: list[Severity]
) -> None:
    tray = gpu_node(1, gpus=(gpu(0, memory_numa_node=4),), device_nodes=DeviceNodes(files, "580.95.05"))
    findings = found(fabric_state, gpu_case(nodes=(tray,) * nodes, gpus=(0,)))[:1]
    assert [finding.severity for finding in findings] == expected
    assert all("nvidia-imex" in finding.fix for finding in findings)


def test_a_board_without_grace_needs_no_imex_channel() -> None:
    board = gpu_node(8, device_nodes=DeviceNodes(("nvidia0",), "580.95.05"))
    assert found(fabric_state, gpu_case(nodes=(board, board))) == ()
