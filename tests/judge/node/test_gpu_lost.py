from __future__ import annotations

from dataclasses import replace

import pytest

from preflight.judge.node.gpu_lost_not_passed_in import gpu_lost
from preflight.model.facts import DeviceNodes, DriverFacts, Gap, NvidiaPciDevice
from preflight.model.finding import Blame, Severity
from preflight.model.gpu import UnreadableGpu
from tests.gpus import bdf, gpu
from tests.judge.findings import found, on, on_gpus, only, skips
from tests.node_facts import NO_NVML, case, contained, env, gpu_case, gpu_node, node

SEVEN = gpu_node(8, gpus=tuple(gpu(i) for i in range(7)))


def test_as_many_gpus_as_on_the_bus_are_fine() -> None:
    assert on_gpus(gpu_lost, gpu_node(8)) == ()


def test_a_machine_without_nvidia_hardware_has_lost_nothing() -> None:
    assert on(gpu_lost, node()) == ()


def test_a_gpu_that_nvml_no_longer_lists_fails_and_is_named_by_its_bus_id() -> None:
    finding = only(on_gpus(gpu_lost, SEVEN))
    assert (finding.severity, finding.blame) == (Severity.FAIL, Blame.GPU)
    assert bdf(7) in finding.subject
    assert "7 of the 8" in finding.problem


def test_all_gpus_lost_with_the_driver_loaded_is_found_too() -> None:
    assert only(on_gpus(gpu_lost, gpu_node(8, gpus=()))).severity is Severity.FAIL


def test_with_gloo_asked_for_it_is_only_a_warning() -> None:
    assert only(found(gpu_lost, case(nodes=(SEVEN,)))).severity is Severity.WARN


def test_a_container_that_was_given_some_of_the_gpus_has_lost_none() -> None:
    some = contained(gpu_node(8, gpus=(gpu(0), gpu(1)), device_nodes=DeviceNodes(("nvidia0", "nvidia1"), "580")))
    assert on_gpus(gpu_lost, some) == ()


def test_a_container_that_lists_fewer_than_it_was_given_has_lost_some() -> None:
    assert only(on_gpus(gpu_lost, contained(SEVEN))).severity is Severity.FAIL


def test_an_nvml_that_does_not_work_is_left_to_the_check_of_the_driver() -> None:
    assert [each.reason for each in skips(gpu_lost, gpu_case(nodes=(gpu_node(gpus=NO_NVML),)))] == [NO_NVML.reason]


def test_a_device_set_aside_for_virtual_machines_is_not_lost() -> None:
    devices = (*gpu_node(1).nvidia_pci, NvidiaPciDevice(bdf(1), "0x2330", "vfio-pci", 0))  # type: ignore[misc]
    assert on_gpus(gpu_lost, gpu_node(1, nvidia_pci=devices)) == ()


def test_a_device_without_a_driver_beside_working_ones_is_lost() -> None:
    devices = (*gpu_node(1).nvidia_pci, NvidiaPciDevice(bdf(1), "0x2330", Gap("none"), 0))  # type: ignore[misc]
    assert only(on_gpus(gpu_lost, gpu_node(1, nvidia_pci=devices))).severity is Severity.FAIL


def test_a_subset_that_a_scheduler_allotted_is_a_warning() -> None:
    allotted = replace(SEVEN, gpus=(gpu(0), gpu(1)), environment=env(CUDA_VISIBLE_DEVICES="0,1"))
    assert only(on_gpus(gpu_lost, allotted)).severity is Severity.WARN


def test_naming_more_gpus_than_nvml_lists_excuses_nothing() -> None:
    named = replace(SEVEN, environment=env(CUDA_VISIBLE_DEVICES="0,1,2,3,4,5,6,7"))
    assert only(on_gpus(gpu_lost, named)).severity is Severity.FAIL


LOST = Gap("NVMLError_GpuIsLost: the GPU has fallen off the bus or can't be reached")


def test_a_gpu_that_the_driver_calls_lost_fails_though_it_is_listed() -> None:
    lost = gpu_node(8, gpus=(*map(gpu, range(7)), gpu(7, temperature_c=LOST)))
    finding = only(on_gpus(gpu_lost, lost))
    assert (finding.severity, finding.subject) == (Severity.FAIL, f"node1 GPU 7 ({bdf(7)})")


@pytest.mark.parametrize(
    "reason", ("not read: no time was left for this call", "no answer within 15.0 s: the call hangs")
)
def test_a_gpu_that_gave_no_answer_in_time_is_not_called_lost(reason: str) -> None:
    slow = replace(SEVEN, driver=DriverFacts("580", "13.0", (UnreadableGpu(7, reason),)))
    assert reason in skips(gpu_lost, gpu_case(nodes=(slow,)))[0].reason


def test_a_gpu_that_kills_who_opens_it_fails() -> None:
    deadly = replace(SEVEN, driver=DriverFacts("580", "13.0", (UnreadableGpu(7, "the process died in this call"),)))
    assert only(on_gpus(gpu_lost, deadly)).severity is Severity.FAIL


def test_a_gpu_that_a_cgroup_keeps_for_others_is_not_lost() -> None:
    others = UnreadableGpu(7, "NVMLError_NoPermission: this process may not use it")
    assert on_gpus(gpu_lost, replace(SEVEN, driver=DriverFacts("580", "13.0", (others,)))) == ()
