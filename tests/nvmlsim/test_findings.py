"""Each healthy machine gives no finding, each broken one exactly its own."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from preflight.facts.run import probe_node
from preflight.judge.check import Case, fact_checks, run_checks
from preflight.model.codec import decode, encode
from preflight.model.facts import NodeFacts
from preflight.model.finding import Finding, SkippedCheck
from preflight.system.machine import Tree
from tests.nvmlsim.machine import HANG, SimMachine
from tests.nvmlsim.machines import BROKEN, H100X8, HEALTHY, V100X4
from tests.nvmlsim.simulate import simulate
from tests.sysroot import answering

pytestmark = pytest.mark.heavy(3)


def probed(machine: SimMachine, root: Path, cuda: str = "12.6") -> NodeFacts:
    """Return the facts of a simulated machine, seen from a torch for this CUDA."""
    version_file = f"__version__ = '2.7.1'\ncuda: str = '{cuda}'\n"
    torch = {"location": "/venv/torch", "version_file": version_file, "nccl_wheels": {}}
    software = {"python": "3.11.7", "preflight": "0.1.0", "torch": torch}
    return probe_node(simulate(machine, root), answering(Tree(root), {"software": software}))[0]


def judged(node: NodeFacts) -> tuple[tuple[Finding, ...], tuple[SkippedCheck, ...]]:
    """Return what the facts alone tell."""
    return run_checks(fact_checks(), Case((node,), (), "nccl", 0, wants_gpus=True))[:2]


@pytest.mark.parametrize("machine", HEALTHY, ids=lambda machine: str(machine.name))
def test_a_healthy_machine_gives_no_finding(machine: SimMachine, tmp_path: Path) -> None:
    node = probed(machine, tmp_path)
    findings, skipped = judged(node)
    assert findings == ()
    assert [check for check in skipped if check.crashed] == []
    assert decode(NodeFacts, encode(node)) == node


@pytest.mark.parametrize("what", BROKEN)
def test_a_broken_machine_gives_exactly_its_finding(what: str, tmp_path: Path) -> None:
    check, machine = BROKEN[what]
    findings, skipped = judged(probed(machine, tmp_path))
    assert [finding.check for finding in findings] == [check]
    assert [check for check in skipped if check.crashed] == []


def gaps(node: NodeFacts) -> set[str]:
    """Return the paths of what could not be read."""
    return {gap["fact"] for gap in encode(node)["gaps"]}


@pytest.mark.timing
@pytest.mark.parametrize(
    ("call", "fact"),
    [
        ("nvmlDeviceGetUUID/3", "gpus[3].uuid"),
        ("nvmlDeviceGetTemperature/0/0", "gpus[0].temperature_c"),
        ("nvmlDeviceGetNvLinkState/3/4", "gpus[3].nvlinks[4].is_active"),
        ("nvmlDeviceGetP2PStatus/0/7/4", "gpu_p2p[6].pci"),
        ("nvmlDeviceGetGpuFabricInfoV/2", "gpus[2].fabric"),
    ],
)
def test_a_library_that_hangs_in_one_call_costs_one_gap_and_at_most_5_s(call: str, fact: str, tmp_path: Path) -> None:
    healthy = gaps(probed(H100X8, tmp_path / "healthy"))
    start = time.monotonic()
    node = probed(replace(H100X8, answers={call: HANG}), tmp_path / "hanging")
    assert time.monotonic() - start < 5
    assert gaps(node) - healthy == {fact}
    findings, skipped = judged(node)
    assert findings == ()
    assert [check for check in skipped if check.crashed] == []


def test_a_volta_with_a_torch_for_cuda_13_is_too_old(tmp_path: Path) -> None:
    findings, _ = judged(probed(replace(V100X4, driver="580.95.05"), tmp_path, cuda="13.0"))
    assert [finding.check for finding in findings] == ["gpu-too-old"] * 4


def test_the_checks_of_gpus_could_all_look(tmp_path: Path) -> None:
    _, skipped = judged(probed(H100X8, tmp_path))
    of_gpus = {"gpu-busy", "gpu-memory", "gpu-mode", "nvlink-down", "fabric-state", "pcie-width", "p2p-refused"}
    assert of_gpus.isdisjoint({check.check for check in skipped})
