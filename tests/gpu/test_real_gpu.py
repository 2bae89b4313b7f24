"""On a machine with NVIDIA GPUs: what NVML tells preflight is what nvidia-smi and CUDA tell.

`pytest -m gpu`; PREFLIGHT_REQUIRE=gpu turns the skips into failures.
"""

from __future__ import annotations

import csv
import io
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from preflight.check.recommend.env import cuda_places
from preflight.facts.run import probe_node
from preflight.facts.topo_facts import topology_facts
from preflight.model.codec import GAPS, decode, encode
from preflight.model.facts import Gap, Gpu, GpuPath, NodeFacts
from preflight.system.kernel_queries import live_machine

pytestmark = pytest.mark.gpu

FIELDS = "index,uuid,name,pci.bus_id,memory.total,compute_cap,pcie.link.width.current"
DEVICES = """
import torch
for i in range(torch.cuda.device_count()):
    print(torch.cuda.get_device_properties(i).uuid)
"""


@pytest.fixture
def node(need: Callable[[str, bool, str], None]) -> NodeFacts:
    has_gpu = shutil.which("nvidia-smi") is not None and any(Path("/dev").glob("nvidia[0-9]*"))
    need("gpu", has_gpu, "no NVIDIA GPU here: neither nvidia-smi nor /dev/nvidia<N>")
    return probe_node(live_machine())[0]


def gpus_of(node: NodeFacts) -> tuple[Gpu, ...]:
    assert not isinstance(node.gpus, Gap), node.gpus.reason
    assert node.gpus
    return node.gpus


def nvidia_smi(*arguments: str) -> str:
    return subprocess.run(["nvidia-smi", *arguments], capture_output=True, check=True, text=True, timeout=60).stdout


def test_the_gpus_are_those_of_nvidia_smi(node: NodeFacts) -> None:
    rows = csv.reader(io.StringIO(nvidia_smi(f"--query-gpu={FIELDS}", "--format=csv,noheader,nounits")))
    for gpu, row in zip(gpus_of(node), rows, strict=True):
        index, uuid, name, bus_id, memory_mib, capability, width = (cell.strip() for cell in row)
        assert (gpu.nvml_index, gpu.uuid, gpu.name, gpu.compute_capability) == (int(index), uuid, name, capability)
        assert gpu.bdf == bus_id.lower().removeprefix("0000")
        assert isinstance(gpu.memory_total_bytes, int)
        assert gpu.memory_total_bytes >> 20 == int(memory_mib)
        assert not isinstance(gpu.pcie, Gap)
        assert gpu.pcie.width == int(width)


def test_the_levels_and_affinities_are_those_of_nvidia_smi(node: NodeFacts) -> None:
    shown = topology_facts(nvidia_smi("topo", "-m"))
    assert {(p.a, p.b): p.level for p in _paths(node)} == {(p.a, p.b): p.level for p in _paths(shown) if p.a < p.b}
    for gpu, seen in zip(gpus_of(node), gpus_of(shown), strict=True):
        if not isinstance(seen.cpu_affinity, Gap):
            assert gpu.cpu_affinity == seen.cpu_affinity


def _paths(node: NodeFacts) -> tuple[GpuPath, ...]:
    assert not isinstance(node.gpu_paths, Gap)
    return node.gpu_paths


def test_no_number_of_this_driver_is_unknown_to_preflight(node: NodeFacts) -> None:
    assert [gap for gap in encode(node)[GAPS] if "does not know" in gap["reason"]] == []


def test_the_facts_come_back_from_json(node: NodeFacts) -> None:
    assert decode(NodeFacts, encode(node)) == node


def test_a_probe_takes_no_more_than_its_limit(node: NodeFacts) -> None:
    start = time.monotonic()
    probe_node(live_machine())
    assert time.monotonic() - start < 6


def test_cuda_counts_in_bus_order_as_the_env_file_says(node: NodeFacts) -> None:
    environ = {k: v for k, v in os.environ.items() if k != "CUDA_VISIBLE_DEVICES"} | {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    ran = subprocess.run(
        [sys.executable, "-c", DEVICES], capture_output=True, check=True, text=True, env=environ, timeout=100
    )
    by_cuda = [f"GPU-{line.removeprefix('GPU-')}" for line in ran.stdout.split()]
    places = cuda_places(gpus_of(node))
    assert places is not None
    assert [by_cuda[places[gpu.nvml_index]] for gpu in gpus_of(node)] == [gpu.uuid for gpu in gpus_of(node)]
