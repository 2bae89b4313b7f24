from __future__ import annotations

import pytest

from preflight.judge.node.gpu_busy_throttled import gpu_throttled
from preflight.model.finding import Severity
from tests.gpus import gpu
from tests.judge.findings import on_gpus, only
from tests.node_facts import gpu_node


@pytest.mark.parametrize("reasons", [(), ("idle",), ("sw_power_cap",), ("applications_clocks", "0x200")])
def test_idling_and_the_power_cap_are_normal(reasons: tuple[str, ...]) -> None:
    assert on_gpus(gpu_throttled, gpu_node(1, gpus=(gpu(0, throttle_reasons=reasons),))) == ()


@pytest.mark.parametrize("reason", ["hw_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown"])
def test_a_slowdown_by_the_hardware_fails(reason: str) -> None:
    hot = gpu(0, throttle_reasons=("idle", reason), temperature_c=92)
    finding = only(on_gpus(gpu_throttled, gpu_node(1, gpus=(hot,))))
    assert finding.severity is Severity.FAIL
    assert "92 °C" in finding.problem


def test_a_slowdown_by_the_driver_for_heat_is_a_warning() -> None:
    hot = gpu_node(1, gpus=(gpu(0, throttle_reasons=("sw_thermal_slowdown",)),))
    assert only(on_gpus(gpu_throttled, hot)).severity is Severity.WARN


def test_a_laptop_on_its_battery_is_slower_and_not_broken() -> None:
    reasons = ("hw_slowdown", "hw_power_brake_slowdown")
    for name, severity in (
        ("NVIDIA GeForce RTX 4090 Laptop GPU", Severity.WARN),
        ("NVIDIA H100 80GB HBM3", Severity.FAIL),
    ):
        finding = only(on_gpus(gpu_throttled, gpu_node(1, gpus=(gpu(0, name=name, throttle_reasons=reasons),))))
        assert finding.severity is severity
        assert ("power adapter" in finding.fix) is (severity is Severity.WARN)
    hot = gpu(0, name="NVIDIA GeForce RTX 4090 Laptop GPU", throttle_reasons=(*reasons, "hw_thermal_slowdown"))
    assert only(on_gpus(gpu_throttled, gpu_node(1, gpus=(hot,)))).severity is Severity.FAIL
