from __future__ import annotations

import pytest

from preflight.judge.node.gpu_lost_not_passed_in import gpu_not_passed_in
from preflight.model.facts import ContainerKind, DeviceNodes, Gap
from preflight.model.finding import Blame, Severity
from tests.judge.findings import found, on, on_gpus, only, skips
from tests.node_facts import NO_NVML, case, contained, gpu_case, gpu_node, node

WITHOUT = gpu_node(device_nodes=DeviceNodes(("nvidiactl",), "580.95.05"), driver=NO_NVML, gpus=NO_NVML)


@pytest.mark.parametrize(
    ("kind", "fix"),
    [
        (ContainerKind.DOCKER, "--gpus all"),
        (ContainerKind.KUBERNETES, "nvidia.com/gpu"),
        (ContainerKind.APPTAINER, "--nv"),
        (ContainerKind.OTHER, "--gpus all"),
    ],
)
def test_a_container_that_was_given_no_gpu_fails_and_is_told_the_option(kind: ContainerKind, fix: str) -> None:
    finding = only(on_gpus(gpu_not_passed_in, contained(WITHOUT, kind)))
    assert (finding.severity, finding.blame) == (Severity.FAIL, Blame.CONTAINER)
    assert fix in finding.fix


def test_a_container_with_a_gpu_is_fine() -> None:
    assert on_gpus(gpu_not_passed_in, contained(gpu_node())) == ()


def test_outside_a_container_missing_device_files_are_another_matter() -> None:
    assert on_gpus(gpu_not_passed_in, WITHOUT) == ()


def test_a_container_on_a_machine_without_gpus_is_fine() -> None:
    assert on(gpu_not_passed_in, contained(node())) == ()


def test_with_gloo_asked_for_it_is_only_a_warning() -> None:
    assert only(found(gpu_not_passed_in, case(nodes=(contained(WITHOUT),)))).severity is Severity.WARN


def test_a_container_kind_that_could_not_be_read_skips_the_check() -> None:
    assert skips(gpu_not_passed_in, gpu_case(nodes=(gpu_node(system=Gap("denied")),)))[0].reason == "denied"
