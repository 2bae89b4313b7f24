"""On a machine with NVIDIA GPUs: the tests below NCCL run on real ones, and find them sound.

`pytest -m gpu`; PREFLIGHT_REQUIRE=gpu turns the skips into failures, PREFLIGHT_REQUIRE=gpus those for want of a second.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from preflight.facts.counters import probe_counters
from preflight.facts.run import probe_node
from preflight.model.counters import changes
from preflight.model.facts import Gap
from preflight.system.kernel_queries import live_machine
from tests.command import Command
from tests.conftest import PROJECT

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(600)]

# In a process of its own: CUDA must not come up in the one that forks children.
JOBS = """
import json, sys
from preflight.model.device_job import DeviceJob, JobKind, ProductSize
from preflight.trial.rank.gpu_test_cuda import CudaDevices
from preflight.trial.rank.gpu_tests import run_products
from preflight.trial.rank.gpu_tests import run_host_copies
from preflight.trial.rank.gpu_tests import check_pair_data, time_pair
kind, places = JobKind(sys.argv[1]), tuple(map(int, sys.argv[2].split(",")))
run = {JobKind.GEMM: run_products, JobKind.HOST_COPY: run_host_copies, JobKind.PAIR_DATA: check_pair_data,
       JobKind.PAIR_SPEED: time_pair}[kind]
devices = CudaDevices()
import torch
for place in places:
    uuid = f"GPU-{torch.cuda.get_device_properties(place).uuid}"
    devices.open(place, uuid, "")
products = (ProductSize("float32", 2048), ProductSize("bfloat16", 4096))
job = DeviceJob(kind, places, (4096, 1 << 20, 64 << 20), 0.3, products=products)
run(devices, job, lambda event: print(json.dumps(event)))
"""


@pytest.fixture
def gpus(need: Callable[[str, bool, str], None]) -> int:
    has_gpu = shutil.which("nvidia-smi") is not None and any(Path("/dev").glob("nvidia[0-9]*"))
    need("gpu", has_gpu, "no NVIDIA GPU here: neither nvidia-smi nor /dev/nvidia<N>")
    node = probe_node(live_machine())[0]
    assert not isinstance(node.gpus, Gap), node.gpus.reason
    return len(node.gpus)


@pytest.fixture
def pair(gpus: int, need: Callable[[str, bool, str], None]) -> str:
    need("gpus", gpus > 1, "only one NVIDIA GPU here, a pair needs two")
    return "0,1"


def reported(kind: str, places: str) -> list[dict[str, Any]]:
    ran = subprocess.run(
        [sys.executable, "-c", JOBS, kind, places],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return [json.loads(line) for line in ran.stdout.splitlines()]


def test_products_are_exact_steady_and_faster_in_bfloat16(gpus: int) -> None:
    gemms = {e["gemm"]["dtype"]: e["gemm"] for e in reported("gemm", "0") if "gemm" in e}
    assert all(gemm["wrong_elements"] == gemm["differing_repeats"] == 0 for gemm in gemms.values())
    assert gemms["bfloat16"]["tflop_s"] > gemms["float32"]["tflop_s"] > 1


def test_all_gpus_compute_the_same_bits(gpus: int) -> None:
    digests = [[e["gemm"]["digest"] for e in reported("gemm", str(i)) if "gemm" in e] for i in range(gpus)]
    assert all(each == digests[0] for each in digests)


def test_host_copies_arrive_and_take_a_believable_time(gpus: int) -> None:
    copies = [e["host_copy"] for e in reported("host_copy", "0") if "host_copy" in e]
    assert {copy["arrived"] for copy in copies} == {"right"}
    large = [copy["gb_s"] for copy in copies if copy["size_bytes"] == 64 << 20]
    assert all(1 < gb_s < 1000 for gb_s in large)


def test_copies_between_two_gpus_arrive_and_are_timed(pair: str) -> None:
    copied = [e["copied"] for e in reported("pair_data", pair) if "copied" in e]
    assert len(copied) == 18
    assert {copy["arrived"] for copy in copied} == {"right"}
    speeds = [e["speed"] for e in reported("pair_speed", pair) if "speed" in e]
    assert all(speed["gb_s"] > 0 for speed in speeds)


def test_an_idle_moment_grows_no_error_counter(gpus: int) -> None:
    first, second = (probe_counters(live_machine()) for _ in range(2))
    fatal = [each for each in changes(first, second) if each.kind.value == "fatal" and isinstance(each.grown, int)]
    assert fatal
    assert all(each.grown == 0 for each in fatal)


def test_a_quick_check_tests_every_gpu_and_every_pair(gpus: int, command: Command) -> None:
    ran = command.run("check", "--json", "-")
    tests = ran.document["gpu_tests"]
    assert [test["end"] for test in tests] == ["ok"] * gpus, tests
    assert all(test["computing"]["samples"] > 0 for test in tests)
    assert len(ran.document["p2p"]) == gpus * (gpus - 1) // 2
    assert {pair["end"] for pair in ran.document["p2p"]} <= {"ok"}
