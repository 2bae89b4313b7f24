from __future__ import annotations

import pytest

from preflight.check.recommend.env import recommend
from preflight.judge.gpus_of_node import why_disturbed
from preflight.judge.node.gpu_busy_throttled import gpu_busy
from preflight.judge.run.straggler import straggler
from preflight.judge.verdict import decide
from preflight.model.facts import Gap
from preflight.model.finding import Blame, Finding, Severity
from preflight.model.gpu import GpuProcess
from preflight.model.report import NodeVerdict, Verdict
from preflight.model.trial import TrialResult, without_speeds
from tests.gpus import NO_PAGES, gpu
from tests.judge.findings import found, on_gpus, only
from tests.node_facts import MIB, advice, finding, gpu_case, gpu_node, result, trial

FOREIGN = GpuProcess(4242, 600 * MIB, "python3", 1001, is_ours=False)


@pytest.mark.parametrize("percent", [0, 5])
def test_an_idle_gpu_is_free(percent: int) -> None:
    assert on_gpus(gpu_busy, gpu_node(1, gpus=(gpu(0, utilization_percent=percent),))) == ()


def test_a_process_is_named_with_its_owner_and_memory() -> None:
    finding = only(on_gpus(gpu_busy, gpu_node(gpus=(gpu(0), gpu(1, processes=(FOREIGN,))))))
    assert finding.severity is Severity.WARN
    assert "pid 4242 python3 of uid 1001, 600 MiB" in finding.problem


def test_a_process_of_the_same_user_is_called_yours() -> None:
    mine = GpuProcess(7, Gap("not told"), Gap("hidden"), 1000, is_ours=True)
    finding = only(on_gpus(gpu_busy, gpu_node(1, gpus=(gpu(0, processes=(mine,)),))))
    assert "pid 7 of yours" in finding.problem
    assert "kill 7" in finding.fix


def test_nobody_is_told_to_end_what_belongs_to_others() -> None:
    assert "kill" not in only(on_gpus(gpu_busy, gpu_node(1, gpus=(gpu(0, processes=(FOREIGN,)),)))).fix


def test_work_without_a_visible_process_is_found_by_utilisation_and_memory_together() -> None:
    working = gpu(0, utilization_percent=97, memory_used_bytes=612 * MIB)
    assert "97% busy" in only(on_gpus(gpu_busy, gpu_node(1, gpus=(working,)))).problem


@pytest.mark.parametrize("reserved", [600 * MIB, NO_PAGES])
def test_use_without_memory_or_a_process_is_no_proof(reserved: int | Gap) -> None:
    driver_only = 4 * MIB if isinstance(reserved, int) else 600 * MIB  # an old driver counts its own as used
    idle = gpu(0, utilization_percent=100, memory_used_bytes=driver_only, memory_reserved_bytes=reserved)
    assert on_gpus(gpu_busy, gpu_node(1, gpus=(idle,))) == ()


def test_a_busy_gpu_that_is_not_used_does_not_matter() -> None:
    busy = gpu_node(gpus=(gpu(0), gpu(1, processes=(FOREIGN,))))
    assert found(gpu_busy, gpu_case(nodes=(busy,), gpus=(0,))) == ()


def test_a_gpu_that_tells_no_utilisation_is_free_without_processes() -> None:
    assert on_gpus(gpu_busy, gpu_node(1, gpus=(gpu(0, utilization_percent=NO_PAGES),))) == ()


SLOW = trial(results=tuple(result(size_bytes=size, own_us=(100.0, 900.0)) for size in (MIB, 32 * MIB, 64 * MIB)))


def test_a_disturbed_trial_keeps_its_outcome_and_loses_every_speed() -> None:
    blank = without_speeds(SLOW, why_disturbed((gpu(0), gpu(1, processes=(FOREIGN,)))))
    gap = Gap("GPU 1 was in use by another process")
    assert [(each.verified, each.busbw_gb_s, each.median_us) for each in blank.results] == [(True, gap, gap)] * 3
    assert why_disturbed((gpu(0),)) == ""


def test_no_rank_is_called_slow_beside_another_job() -> None:
    assert found(straggler, gpu_case(SLOW)) != ()
    assert found(straggler, gpu_case(without_speeds(SLOW, "busy"))) == ()


def recommended(one: TrialResult) -> str:
    return recommend((one,), (), (), cpu_path=False).reason


def test_the_advice_names_no_speed_beside_another_job() -> None:
    assert "GB/s" in recommended(SLOW)
    assert "GB/s" not in recommended(without_speeds(SLOW, "busy"))
    assert "another job used the GPUs" in recommended(without_speeds(SLOW, "busy"))


@pytest.mark.parametrize(
    ("others", "expected"), [((), NodeVerdict.UNKNOWN), ((finding(blame=Blame.GPU),), NodeVerdict.REJECT)]
)
def test_a_busy_node_is_not_accepted_and_a_broken_one_still_rejected(
    others: tuple[Finding, ...], expected: NodeVerdict
) -> None:
    busy = finding(Severity.WARN, Blame.APPLICATION, check="gpu-busy")
    decision = decide(
        gpu_case(), (busy, *others), (), (trial(),), advice(), (), strict=False, accept=True, cpu_path=False
    )  # fmt: skip
    assert decision.node_verdict is expected
    job = decide(gpu_case(), (busy,), (), (trial(),), advice(), (), strict=False, accept=False, cpu_path=False)
    assert job.verdict is Verdict.READY
