"""What the ranks measured below NCCL, put together with what the driver says and what the counters did."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from preflight.errors import UnreadableFact
from preflight.facts.counters import probe_counters
from preflight.model.counters import CounterChange
from preflight.model.facts import Gap, known
from preflight.model.gpu import P2pStatus
from preflight.model.gpu_test import Hardware
from preflight.search.backend_choice import BackendChoice
from preflight.system import processes
from preflight.system.machine import Tree
from preflight.system.nvml_keeper import KEEPER, watch_xids
from preflight.trial.hardware_results import HardwareWatch, hardware_results
from preflight.trial.launch_result import LaunchResult
from tests.accept.machines import EVENTS
from tests.hardware import gpu_test, pair
from tests.node_facts import gpu_node, node
from tests.nvmlsim.machine import AFTER, NOT_SUPPORTED, render
from tests.nvmlsim.machines import H100X8, with_gpu
from tests.nvmlsim.simulate import LIBRARY, simulate
from tests.sysroot import answering, build

pytestmark = pytest.mark.heavy(4)

NODE = gpu_node(2)
PATH = BackendChoice("nccl", "", "nccl", 2, known(NODE.gpus), wants_gpus=True, cpu_path=False, blocked="")
LAUNCHED = LaunchResult(
    pairs=(pair(driver=Gap("not asked")),), gpus=(gpu_test(1), gpu_test(0)), started_at=time.monotonic()
)


def test_the_drivers_word_the_limits_and_the_counters_join_the_tests(tmp_path: Path) -> None:
    tree = simulate(H100X8, tmp_path)
    watching = HardwareWatch(tree)
    watching.begin(PATH)
    worse = with_gpu(with_gpu(H100X8, 1, ecc_counts=(0, 1, 0, 1)), 5, ecc_counts=(0, 1, 0, 1))
    (tmp_path / f"{LIBRARY}.machine").write_text(render(worse), encoding="utf-8")
    found = hardware_results(LAUNCHED, NODE, PATH, watching, "")
    assert isinstance(found, Hardware)
    assert found.pairs[0].driver is P2pStatus.OK
    assert [test.gpu for test in found.gpus] == [0, 1]
    assert isinstance(found.counters, tuple)
    grown = {each.subject: each.grown for each in found.counters if each.name == "ecc_uncorrected"}
    assert grown == {"GPU 0": 0, "GPU 1": 1}, "GPU 5 is somebody else's"
    assert dict(found.host_limits_gb_s).keys() == {0, 1}
    assert found.pair_limits[0].gb_s == 450.0


def test_beside_another_job_no_speed_is_left_and_the_data_is(tmp_path: Path) -> None:
    found = hardware_results(LAUNCHED, NODE, PATH, HardwareWatch(Tree(tmp_path)), "GPU 0 was in use by another process")
    assert isinstance(found, Hardware)
    gap = Gap("GPU 0 was in use by another process")
    assert {speed.gb_s for pair in found.pairs for speed in pair.speeds} == {gap}
    assert {gemm.tflop_s for test in found.gpus for gemm in test.gemms} == {gap}
    assert {copy.gb_s for test in found.gpus for copy in test.copies} == {gap}
    assert found.pairs[0].copies == LAUNCHED.pairs[0].copies


def test_the_cpu_path_is_a_gap_with_its_reason_and_reads_no_counter(tmp_path: Path) -> None:
    cpu = BackendChoice("gloo", "", "gloo", 2, (), wants_gpus=False, cpu_path=True, blocked="")
    watching = HardwareWatch(Tree(tmp_path), xids=watch_xids())
    watching.begin(cpu)
    assert (watching.counters, watching.xids) == ((), None)
    assert hardware_results(LaunchResult(), node(), cpu, watching, "") == Gap("CPU path: no GPU was tested")


def test_gpus_that_were_never_reached_are_a_gap_with_what_stopped_it(tmp_path: Path) -> None:
    stopped = LaunchResult(problem="torchrun died by SIGKILL")
    found = hardware_results(stopped, NODE, PATH, HardwareWatch(Tree(tmp_path)), "")
    assert found == Gap("the GPUs were not tested: torchrun died by SIGKILL")
    blocked = replace(PATH, gpus=(), blocked="NVML does not answer: hung")
    assert "NVML does not answer" in str(
        hardware_results(LaunchResult(), NODE, blocked, HardwareWatch(Tree(tmp_path)), "")
    )


def watched(tmp_path: Path, **answers: str) -> dict[str, CounterChange]:
    """Return what a run's Xids come to, with NVML's answers to questions about events, where the log is closed."""
    asked = {"nvmlEventSetCreate": "", **{f"nvmlDeviceRegisterEvents/{i}": "" for i in range(8)}, **answers}
    tree = simulate(replace(H100X8, answers=asked), tmp_path)  # a tree has no kernel log
    watching = HardwareWatch(tree, xids=watch_xids(str(tmp_path / LIBRARY)))
    watching.begin(PATH)
    time.sleep(0.5)
    return {f"{each.subject} {each.name}": each for each in watching.stop(5.0)}


def test_an_xid_during_the_run_comes_from_nvmls_events_where_the_kernel_log_is_closed(tmp_path: Path) -> None:
    found = watched(tmp_path, nvmlEventSetWait="3 79")
    assert (found["GPU 3 xid_79"].grown, found["GPU 3 xid_79"].gpu) == (1, 3)
    assert found["NVML events xids"].grown == 1
    assert "kernel log all" not in found


def test_a_run_without_xids_is_told_as_one_that_somebody_listened_to(tmp_path: Path) -> None:
    assert watched(tmp_path)["NVML events xids"].grown == 0


def test_where_neither_the_log_nor_events_tell_the_gap_has_both_reasons(tmp_path: Path) -> None:
    gap = watched(tmp_path, nvmlEventSetCreate="!4")["kernel log all"].grown
    assert isinstance(gap, Gap)
    assert "not recorded" in gap.reason
    assert "NVML events: NVMLError_NoPermission" in gap.reason


@pytest.mark.parametrize("events", ({}, {"nvmlEventSetCreate": NOT_SUPPORTED}), ids=("with events", "without"))
def test_who_listens_wakes_every_gpu_and_keeps_them_open_to_the_end(tmp_path: Path, events: dict[str, str]) -> None:
    waking = {f"nvmlDeviceGetHandleByIndex/{i}": f"{AFTER} 0.2" for i in range(8)}
    simulate(replace(H100X8, answers=EVENTS | waking | events), tmp_path)
    start = time.monotonic()
    watch = watch_xids(str(tmp_path / LIBRARY))
    watch.wait()
    try:
        assert time.monotonic() - start > 8 * 0.2
        assert [each["awake"] for each in watch.messages if "awake" in each] == list(range(8))
        assert processes.state(watch.crew.children[KEEPER].pid) in ("S", "R"), "it holds NVML open"
    finally:
        watch.crew.end(KEEPER)


def test_a_listener_that_gave_up_and_was_reaped_by_the_launcher_is_no_defect(tmp_path: Path) -> None:
    simulate(replace(H100X8, answers={"nvmlEventSetCreate": NOT_SUPPORTED}), tmp_path)
    watch = watch_xids(str(tmp_path / LIBRARY))
    watch.wait()
    assert processes.kill_descendants(frozenset(), 10.0) == ()  # as the launcher does at the end of a run
    with pytest.raises(UnreadableFact, match="NVMLError_NotSupported"):
        watch.stop()


def test_a_driver_that_hangs_at_the_request_costs_its_limit_and_nothing_more(tmp_path: Path) -> None:
    start = time.monotonic()
    gap = watched(tmp_path, nvmlEventSetCreate="hang")["kernel log all"].grown
    assert isinstance(gap, Gap)
    assert "the driver hangs" in gap.reason
    assert time.monotonic() - start < 20


def test_xid_45_of_a_process_of_ours_is_left_out_and_anothers_is_told_with_its_process(tmp_path: Path) -> None:
    (tmp_path / "run/logs").mkdir(parents=True)
    (tmp_path / "run/joint/logs").mkdir(parents=True)
    (tmp_path / "run/logs/pids").write_text("101\n1")  # the second was cut off in writing
    (tmp_path / "run/joint/logs/pids").write_text("202\n")
    line = "NVRM: Xid (PCI:0000:1b:00): {}, pid={}, name=python3, Ch 00000010"
    tree = build(tmp_path / "machine", {"sys/module/nvidia/": ""})
    log = [
        line.format(45, 101),
        line.format(45, "'202'"),
        line.format(45, 1),
        line.format(45, 777),
        line.format(79, 101),
    ]
    quiet, loud = answering(tree, {"kernel_log": []}), answering(tree, {"kernel_log": log})
    watching = HardwareWatch(loud, probe_counters(quiet), run_dir=str(tmp_path / "run"))
    grown = {each.name: each.grown for each in watching.stop(5.0) if each.name.startswith("xid_")}
    assert grown == {"xid_45_of_1": 1, "xid_45_of_777": 1, "xid_79": 1}


def test_a_run_that_was_cut_short_does_not_read_the_counters_again(tmp_path: Path) -> None:
    watching = HardwareWatch(simulate(H100X8, tmp_path))
    watching.begin(PATH)
    found = hardware_results(LAUNCHED, NODE, PATH, watching, "", left_s=0.0)
    assert isinstance(found, Hardware)
    assert found.counters == Gap("the counters were not read again: the run was cut short")
