"""What the ranks measured below NCCL, put together with what the driver says and what the counters did."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from preflight.launch.hardware import counters_of, hardware_of
from preflight.launch.launcher import Launched
from preflight.model.facts import Gap, known
from preflight.model.gpu import P2pStatus
from preflight.model.gpu_test import Hardware
from preflight.plan.path import Path as RunPath
from preflight.system.machine import Tree
from tests.facts import gpu_node, node
from tests.hardware import gpu_test, pair
from tests.nvmlsim.machine import render
from tests.nvmlsim.machines import H100X8, with_gpu
from tests.nvmlsim.simulate import LIBRARY, simulate

NODE = gpu_node(2)
PATH = RunPath("nccl", "", "nccl", 2, known(NODE.gpus), wants_gpus=True, cpu_path=False, blocked="")
LAUNCHED = Launched(pairs=[pair(driver=Gap("not asked"))], gpus=[gpu_test(1), gpu_test(0)])


def test_the_drivers_word_the_limits_and_the_counters_join_the_tests(tmp_path: Path) -> None:
    tree = simulate(H100X8, tmp_path)
    before = counters_of(tree, PATH)
    worse = with_gpu(with_gpu(H100X8, 1, ecc_counts=(0, 1, 0, 1)), 5, ecc_counts=(0, 1, 0, 1))
    (tmp_path / f"{LIBRARY}.machine").write_text(render(worse), encoding="utf-8")
    found = hardware_of(LAUNCHED, NODE, PATH, tree, before, "")
    assert isinstance(found, Hardware)
    assert found.pairs[0].driver is P2pStatus.OK
    assert [test.gpu for test in found.gpus] == [0, 1]
    assert isinstance(found.counters, tuple)
    grown = {each.subject: each.grown for each in found.counters if each.name == "ecc_uncorrected"}
    assert grown == {"GPU 0": 0, "GPU 1": 1}, "GPU 5 is somebody else's"
    assert dict(found.host_limits_gb_s).keys() == {0, 1}
    assert found.pair_limits[0].gb_s == 450.0


def test_beside_another_job_no_speed_is_left_and_the_data_is(tmp_path: Path) -> None:
    found = hardware_of(LAUNCHED, NODE, PATH, Tree(tmp_path), (), "GPU 0 was in use by somebody else")
    assert isinstance(found, Hardware)
    gap = Gap("GPU 0 was in use by somebody else")
    assert {speed.gb_s for pair in found.pairs for speed in pair.speeds} == {gap}
    assert {gemm.tflop_s for test in found.gpus for gemm in test.gemms} == {gap}
    assert {copy.gb_s for test in found.gpus for copy in test.copies} == {gap}
    assert found.pairs[0].copies == LAUNCHED.pairs[0].copies


def test_the_cpu_path_is_a_gap_with_its_reason_and_reads_no_counter(tmp_path: Path) -> None:
    cpu = RunPath("gloo", "", "gloo", 2, (), wants_gpus=False, cpu_path=True, blocked="")
    assert counters_of(Tree(tmp_path), cpu) == ()
    assert hardware_of(Launched(), node(), cpu, Tree(tmp_path), (), "") == Gap("CPU path: no GPU was tested")


def test_gpus_that_were_never_reached_are_a_gap_with_what_stopped_it(tmp_path: Path) -> None:
    stopped = Launched(problem="torchrun died by SIGKILL")
    found = hardware_of(stopped, NODE, PATH, Tree(tmp_path), (), "")
    assert found == Gap("the GPUs were not tested: torchrun died by SIGKILL")
    blocked = replace(PATH, gpus=(), blocked="NVML does not answer: hung")
    assert "NVML does not answer" in str(hardware_of(Launched(), NODE, blocked, Tree(tmp_path), (), ""))
