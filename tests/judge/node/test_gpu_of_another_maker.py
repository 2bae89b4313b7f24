from __future__ import annotations

from dataclasses import replace

import pytest

from preflight.judge.node.gpu_of_another_maker import gpu_of_another_maker
from preflight.model.facts import Gap, OtherDevice, SoftwareFacts
from preflight.model.finding import Blame, Severity
from preflight.model.other_makers import OTHER_MAKERS, called
from tests.judge.findings import applies_not, found, on, only, skips
from tests.node_facts import TORCH, gpu_case, gpu_node, laptop, node

MI300X = tuple(OtherDevice("AMD GPU", f"0000:{bus:02x}:00.0", "1002:74a1", True) for bus in range(8))
RADEON = (OtherDevice("AMD GPU", "0000:03:00.0", "1002:744c", False),)
ROCM = SoftwareFacts("3.11.7", "0.1.0", replace(TORCH, other_build="ROCm 6.2.41134"))


def test_eight_mi300x_fail_without_accusing_the_node_and_name_amds_tools() -> None:
    finding = only(found(gpu_of_another_maker, gpu_case(nodes=(node(other_devices=MI300X),))))
    assert (finding.severity, finding.blame) == (Severity.FAIL, Blame.HARNESS)
    assert "8 AMD GPUs" in finding.problem
    assert "rccl-tests" in finding.fix and "rvs" in finding.fix
    assert len(finding.evidence) == 8


def test_with_gloo_asked_for_it_is_only_said() -> None:
    assert only(on(gpu_of_another_maker, node(other_devices=MI300X))).severity is Severity.INFO


def test_a_display_controller_counts_only_where_torch_is_built_for_it() -> None:
    assert on(gpu_of_another_maker, laptop(other_devices=RADEON)) == ()
    finding = only(on(gpu_of_another_maker, node(other_devices=RADEON, software=ROCM)))
    assert "built for ROCm 6.2.41134" in finding.evidence[-1].value


def test_beside_nvidias_gpus_it_does_not_apply() -> None:
    beside = gpu_node(other_devices=(*MI300X, *RADEON))
    assert "NVIDIA" in applies_not(gpu_of_another_maker, gpu_case(nodes=(beside,)))


def test_a_device_that_bus_and_device_file_show_counts_once() -> None:
    shown = (OtherDevice("Ascend NPU", "0000:01:00.0", "19e5:d802", True),
             OtherDevice("Ascend NPU", "/dev/davinci0", "", True))  # fmt: skip
    assert "has 1 Ascend NPU," in only(on(gpu_of_another_maker, node(other_devices=shown))).problem


def test_what_could_not_be_read_is_not_none() -> None:
    assert skips(gpu_of_another_maker, gpu_case(nodes=(node(other_devices=Gap("denied")),)))[0].reason == "denied"


@pytest.mark.parametrize("maker", OTHER_MAKERS, ids=lambda maker: maker.what)
def test_every_makers_tools_are_an_instruction(maker: object) -> None:
    assert str(getattr(maker, "tools", "")).startswith("test them with ")


def test_one_device_is_one_and_several_are_many() -> None:
    assert [called(RADEON), called(MI300X), called((*RADEON, *MI300X))] == ["1 AMD GPU", "8 AMD GPUs", "9 AMD GPUs"]
