from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preflight.judge.gpu_test_results import laggards
from preflight.judge.run.gpu import gpu_slow
from preflight.model.facts import Gap
from preflight.model.finding import Blame, Severity
from preflight.model.gpu_test import GpuTest
from tests.gpus import gpu
from tests.hardware import gemm, gpu_test, hardware, run_with, with_one
from tests.judge.findings import found, only, skips
from tests.node_facts import gpu_case, gpu_node


def at(tflop_s: float) -> dict[str, object]:
    return {"gemms": (gemm(tflop_s=tflop_s), gemm("bfloat16", 700.0))}


def test_equal_gpus_give_nothing() -> None:
    assert found(gpu_slow, run_with(8)) == ()


@pytest.mark.parametrize(("tflop_s", "severity"), [(43.0, Severity.WARN), (30.0, Severity.FAIL)])
def test_a_gpu_below_its_siblings_is_named_with_both_figures(tflop_s: float, severity: Severity) -> None:
    finding = only(found(gpu_slow, run_with(8, gpus=with_one(hardware(8).gpus, 5, **at(tflop_s)))))
    assert (finding.blame, finding.severity) == (Blame.GPU, severity)
    assert "GPU 5" in finding.subject
    assert f"{tflop_s:.1f} vs 50.0 TFLOP/s" in finding.problem
    assert any("1700 MHz" in seen.value for seen in finding.evidence)


def test_a_difference_of_a_few_percent_is_normal() -> None:
    assert found(gpu_slow, run_with(8, gpus=with_one(hardware(8).gpus, 5, **at(46.0)))) == ()


def test_another_model_is_no_sibling() -> None:
    node = gpu_node(3)
    gpus = (gpu(0), gpu(1), gpu(2, name="NVIDIA L20"))
    slow = with_one(hardware(3).gpus, 2, **at(20.0))
    run = gpu_case(nodes=(replace(node, gpus=gpus),), hardware=hardware(3, gpus=slow))
    assert found(gpu_slow, run) == ()


def test_a_busy_gpu_gives_no_speed_and_is_not_passed() -> None:
    blank = tuple(gpu_test(i, gemms=(gemm(tflop_s=Gap("busy")),)) for i in range(2))
    busy = run_with(2, gpus=blank, disturbed="GPU 0 was in use by another process")
    assert [skip.reason for skip in skips(gpu_slow, busy)] == ["GPU 0 was in use by another process"]


def test_the_median_over_a_burns_repetitions_is_judged_not_one_bad_moment() -> None:
    calm: list[GpuTest] = [gpu_test(i, repetition=turn) for turn in range(1, 5) for i in range(4)]
    bad = with_one(hardware().gpus, 0, **at(25.0))
    assert found(gpu_slow, run_with(gpus=(*bad, *calm))) == ()


SPEEDS = st.lists(st.floats(40.0, 60.0), min_size=3, max_size=16)


@given(SPEEDS, st.floats(0.1, 0.5))
def test_one_far_below_all_others_is_found_whatever_their_order(others: list[float], share: float) -> None:
    tight = [50 + (each - 50) / 20 for each in others]  # half a percent up or down
    values = dict(enumerate([*tight, 50 * share]))
    slow = laggards(values, dict.fromkeys(values, "H100"), 0.9)
    assert [each[0] for each in slow] == [len(others)]


@given(SPEEDS)
def test_gpus_within_the_healthy_range_are_never_accused(speeds: list[float]) -> None:
    values = dict(enumerate(50 + (each - 50) / 5 for each in speeds))  # 4% up or down
    assert laggards(values, dict.fromkeys(values, "H100"), 0.9) == []
