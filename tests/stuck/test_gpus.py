"""What `preflight stuck` reads of GPUs, through the whole path to a simulated NVML."""

from __future__ import annotations

from pathlib import Path

import pytest

from preflight.model.gap import Gap
from preflight.stuck.collect.gpus import read_gpus
from tests.nvmlsim.machines import L20X10
from tests.nvmlsim.simulate import simulate
from tests.sysroot import answering


def test_use_power_and_clock_of_each_gpu_are_read(tmp_path: Path) -> None:
    gpus = read_gpus(simulate(L20X10, tmp_path), 0.0)
    assert not isinstance(gpus, Gap) and len(gpus) == 10
    first = gpus[0]
    assert first.power_w == pytest.approx(35.0) and first.power_limit_w == pytest.approx(350.0)
    assert not isinstance(first.utilization_percent, Gap)


def test_without_a_driver_the_gpus_are_a_gap(tmp_path: Path) -> None:
    assert isinstance(read_gpus(answering(simulate(L20X10, tmp_path), {"nvml": {"error": "no driver"}})), Gap)
