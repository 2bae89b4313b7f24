from __future__ import annotations

from typing import Any

import pytest

from preflight.judge.node.gpu_driver import gpu_driver
from preflight.model.facts import ContainerKind, DeviceNodes, Gap, NodeFacts, NvidiaPciDevice
from preflight.model.finding import Blame, Severity
from tests.gpus import bdf
from tests.judge.findings import found, on, on_gpus, only, skips
from tests.node_facts import NO_NVML, case, contained, gpu_case, gpu_node, node

NO_MODULE = Gap("the nvidia module is not loaded")


def broken(reason: str = NO_NVML.reason, **overrides: Any) -> NodeFacts:
    return gpu_node(**{"driver": Gap(reason), "gpus": Gap(reason), **overrides})


def held_by(driver: str | Gap) -> NodeFacts:
    devices = (NvidiaPciDevice(bdf(0), "0x2330", driver, 0),)
    return broken(nvidia_pci=devices, device_nodes=DeviceNodes((), NO_MODULE))


def test_a_working_driver_is_fine() -> None:
    assert on_gpus(gpu_driver, gpu_node()) == ()


def test_a_machine_without_nvidia_hardware_needs_no_driver() -> None:
    assert on(gpu_driver, node()) == ()


def test_a_device_on_the_bus_without_a_driver_fails_and_blames_the_host() -> None:
    finding = only(on_gpus(gpu_driver, held_by(Gap("no driver is bound"))))
    assert (finding.severity, finding.blame) == (Severity.FAIL, Blame.HOST)
    assert "module is not loaded" in finding.problem
    assert "modprobe nvidia" in finding.fix


@pytest.mark.parametrize(("driver", "fix"), [("nouveau", "blacklist nouveau"), ("vfio-pci", "virtual machine")])
def test_a_device_that_another_driver_holds_is_named_with_it(driver: str, fix: str) -> None:
    finding = only(on_gpus(gpu_driver, held_by(driver)))
    assert driver in finding.problem
    assert fix in finding.fix


def test_an_nvml_that_fails_gives_its_reason() -> None:
    finding = only(on_gpus(gpu_driver, broken("Driver/library version mismatch")))
    assert "Driver/library version mismatch" in finding.problem
    assert "reboot" in finding.fix


def test_device_files_alone_are_a_sign_of_hardware() -> None:
    assert only(on_gpus(gpu_driver, broken(nvidia_pci=()))).severity is Severity.FAIL


def test_a_bus_that_could_not_be_read_hides_no_hardware_that_dev_shows() -> None:
    assert only(on_gpus(gpu_driver, broken(nvidia_pci=Gap("no /sys")))).severity is Severity.FAIL


def test_where_neither_bus_nor_dev_can_be_read_nothing_is_concluded() -> None:
    blind = broken(nvidia_pci=Gap("no /sys"), device_nodes=Gap("no /dev"))
    assert "no /sys" in skips(gpu_driver, gpu_case(nodes=(blind,)))[0].reason


def test_with_gloo_asked_for_it_is_only_a_warning() -> None:
    assert only(found(gpu_driver, case(nodes=(broken(),)))).severity is Severity.WARN


def test_a_container_without_gpus_is_left_to_the_check_of_containers() -> None:
    assert on_gpus(gpu_driver, contained(broken(device_nodes=DeviceNodes((), "580.95.05")))) == ()


def test_a_library_missing_in_a_container_is_the_containers_fault() -> None:
    finding = only(on_gpus(gpu_driver, contained(broken(), ContainerKind.KUBERNETES)))
    assert finding.blame is Blame.CONTAINER


def test_a_lost_device_in_a_container_is_still_the_hosts_fault() -> None:
    assert only(on_gpus(gpu_driver, contained(broken("GPU is lost")))).blame is Blame.HOST


def test_an_nvml_that_lists_gpus_but_not_its_version_is_a_warning() -> None:
    assert only(on_gpus(gpu_driver, gpu_node(driver=Gap("Unknown Error")))).severity is Severity.WARN


@pytest.mark.parametrize("reason", ("no answer within 4.3 s: the call hangs", "not read: the deadline came first"))
def test_a_driver_that_gives_no_answer_in_time_rejects_nothing_since_it_may_wake_its_gpus(reason: str) -> None:
    late = gpu_node(driver=Gap(reason), gpus=Gap(reason))
    assert "nvidia-smi -pm 1" in skips(gpu_driver, gpu_case(nodes=(late,)))[0].reason
