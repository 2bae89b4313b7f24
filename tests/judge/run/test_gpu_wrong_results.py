from __future__ import annotations

from dataclasses import replace

from preflight.judge.run.gpu import gpu_wrong_results
from preflight.model.finding import Blame, Severity
from preflight.model.gpu_test import Ending
from tests.hardware import gemm, gpu_test, hardware, run_with, with_one
from tests.judge.findings import found, only, skips

OTHER = (gemm(digest="other"), gemm("bfloat16", 700.0))


def test_gpus_that_all_have_the_same_right_bits_give_nothing() -> None:
    assert found(gpu_wrong_results, run_with(8)) == ()


def test_a_wrong_product_names_its_gpu() -> None:
    gpus = with_one(hardware().gpus, 2, end=Ending.WRONG, problem="3 wrong elements of a float32 GEMM")
    finding = only(found(gpu_wrong_results, run_with(gpus=gpus)))
    assert (finding.blame, finding.severity) == (Blame.GPU, Severity.FAIL)
    assert "GPU 2" in finding.subject
    assert "3 wrong elements" in finding.problem


def test_bits_that_most_others_do_not_have_are_wrong_although_each_repeats_its_own() -> None:
    finding = only(found(gpu_wrong_results, run_with(gpus=with_one(hardware().gpus, 3, gemms=OTHER))))
    assert "GPU 3" in finding.subject


def test_of_two_gpus_that_differ_both_are_named() -> None:
    findings = found(gpu_wrong_results, run_with(2, gpus=with_one(hardware(2).gpus, 1, gemms=OTHER)))
    assert [finding.subject.split(" (")[0] for finding in findings] == ["node1 GPU 0", "node1 GPU 1"]


def test_bits_that_change_under_load_are_found() -> None:
    later = tuple(gpu_test(i, repetition=1) for i in range(4))
    later = (replace(later[0], gemms=OTHER), *later[1:])
    assert "GPU 0" in only(found(gpu_wrong_results, run_with(gpus=(*hardware().gpus, *later)))).subject


def test_a_gpu_without_memory_for_the_test_is_a_skip() -> None:
    gpus = with_one(hardware().gpus, 1, end=Ending.INCONCLUSIVE, problem="CUDA out of memory", gemms=())
    assert [skip.reason for skip in skips(gpu_wrong_results, run_with(gpus=gpus))] == ["GPU 1: CUDA out of memory"]
