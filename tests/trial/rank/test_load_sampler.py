"""A GPU is watched through NVML while it works."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path

import pytest

from preflight.errors import UnreadableFact
from preflight.model.gap import Gap
from preflight.model.gpu_test import UnderLoad
from preflight.trial.rank.gpu_test_devices import LoadSample
from preflight.trial.rank.load_sampler import Watched, summary
from tests.conftest import PROJECT
from tests.nvmlsim.machine import uuid
from tests.nvmlsim.machines import H100X8, with_gpu
from tests.nvmlsim.simulate import LIBRARY, simulate

SAMPLE = LoadSample(1980, 50, 600.0, ("sw_power_cap",), 5, 16)
READ = """
import json, sys
from preflight.system.nvml import open_load_reader
print(json.dumps(open_load_reader(sys.argv[1], sys.argv[2])()))
"""


def test_samples_become_their_extremes() -> None:
    hot = LoadSample(1200, 91, 650.0, ("hw_thermal_slowdown", "sw_power_cap"), 4, 8)
    found = summary([SAMPLE, SAMPLE, hot])
    assert asdict(found) == {
        "samples": 3, "sm_mhz_median": 1980.0, "sm_mhz_min": 1200, "temperature_c_max": 91, "power_w_max": 650.0,
        "throttle_reasons": ("sw_power_cap", "hw_thermal_slowdown"), "pcie_gen_max": 5, "pcie_width_min": 8,
        "throttled_samples": (("sw_power_cap", 3), ("hw_thermal_slowdown", 1)),
    }  # fmt: skip


def test_a_value_that_no_sample_has_is_a_gap_and_one_that_some_have_is_not() -> None:
    gap = Gap("NVMLError_NotSupported")
    blind = LoadSample(gap, gap, gap, gap, gap, gap)
    assert summary([blind]).power_w_max == gap
    assert summary([blind, SAMPLE]).power_w_max == 600.0


def test_watching_lasts_as_long_as_the_work() -> None:
    with Watched(lambda: lambda: SAMPLE) as watched:
        time.sleep(0.3)
    found = watched.under_load()
    assert isinstance(found, UnderLoad)
    assert found.samples >= 2


def test_without_nvml_the_reason_is_what_was_seen_and_the_work_goes_on() -> None:
    def no_nvml() -> object:
        raise UnreadableFact("no driver")

    with Watched(no_nvml) as watched:  # type: ignore[arg-type]
        time.sleep(0.05)
    assert watched.under_load() == Gap("no driver")


@pytest.mark.timing
def test_an_nvml_that_hangs_does_not_keep_the_work_from_ending() -> None:
    start = time.monotonic()

    def hang() -> LoadSample:
        time.sleep(5)
        return SAMPLE

    with Watched(lambda: hang) as watched:
        pass
    assert time.monotonic() - start < 3
    assert isinstance(watched.under_load(), Gap)


def read(machine_dir: Path, gpu_uuid: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", READ, gpu_uuid, str(machine_dir / LIBRARY)],
        cwd=PROJECT, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


def test_the_real_nvml_bindings_read_the_gpu_of_the_uuid(tmp_path: Path) -> None:
    simulate(with_gpu(H100X8, 3, temperature_c=77, throttle=0x48), tmp_path)
    answer = json.loads(read(tmp_path, uuid(3)).stdout)
    assert (answer["temperature_c"], answer["throttle_reasons"], answer["pcie_width"]) == (77, 0x48, 16)
    assert answer["power_mw"] == 70_000
    other = json.loads(read(tmp_path, uuid(2)).stdout)
    assert other["temperature_c"] == 31


def test_a_uuid_that_no_gpu_has_is_unreadable(tmp_path: Path) -> None:
    simulate(H100X8, tmp_path)
    assert "UnreadableFact" in read(tmp_path, "GPU-none").stderr
