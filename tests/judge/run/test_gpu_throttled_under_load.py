from __future__ import annotations

from dataclasses import replace

import pytest

from preflight.judge.run.gpu import gpu_throttled_under_load
from preflight.model.facts import Gap
from preflight.model.finding import Blame, Severity
from tests.hardware import LOAD, gpu_test, hardware, run_with, with_one
from tests.judge.findings import found, only, skips


def reasons(*names: str) -> dict[str, object]:
    return {"computing": replace(LOAD, throttle_reasons=names, temperature_c_max=91)}


def test_a_power_cap_under_load_is_normal() -> None:
    assert found(gpu_throttled_under_load, run_with()) == ()


def test_heat_that_the_hardware_reacts_to_fails_the_host_with_the_temperature() -> None:
    gpus = with_one(hardware().gpus, 3, **reasons("sw_power_cap", "hw_thermal_slowdown"))
    finding = only(found(gpu_throttled_under_load, run_with(gpus=gpus)))
    assert (finding.blame, finding.severity) == (Blame.HOST, Severity.FAIL)
    assert "it is too hot (91 °C)" in finding.problem


@pytest.mark.parametrize(("samples", "count"), [(1, 0), (7, 0), (8, 1), (40, 1)])
def test_one_moment_under_load_is_none(samples: int, count: int) -> None:
    braked = replace(LOAD, throttle_reasons=("hw_slowdown",), throttled_samples=(("hw_slowdown", samples),))
    gpus = with_one(hardware().gpus, 3, computing=braked)
    assert len(found(gpu_throttled_under_load, run_with(gpus=gpus))) == count


def test_the_drivers_own_slowdown_for_heat_warns() -> None:
    gpus = with_one(hardware().gpus, 3, **reasons("sw_thermal_slowdown"))
    assert only(found(gpu_throttled_under_load, run_with(gpus=gpus))).severity is Severity.WARN


def test_what_only_a_burn_brings_out_is_found() -> None:
    later = gpu_test(1, repetition=3, **reasons("hw_power_brake_slowdown"))
    assert "GPU 1" in only(found(gpu_throttled_under_load, run_with(gpus=(*hardware().gpus, later)))).subject


def test_without_nvml_under_load_the_check_could_not_look() -> None:
    gpus = with_one(hardware().gpus, 0, computing=Gap("NVMLError_NoPermission: this process may not use it"))
    skip = skips(gpu_throttled_under_load, run_with(gpus=gpus))
    assert "NoPermission" in skip[0].reason


def test_a_gpu_that_has_no_throttle_reasons_is_no_gap() -> None:
    none = replace(LOAD, throttle_reasons=Gap("NVMLError_NotSupported: the driver does not report this for the GPU"))
    assert found(gpu_throttled_under_load, run_with(gpus=with_one(hardware().gpus, 0, computing=none))) == ()
