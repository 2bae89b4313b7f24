from __future__ import annotations

import pytest

from preflight.judge.run.gpu import gpu_unusable
from preflight.model.finding import Blame, Severity
from preflight.model.gpu_test import Ending
from tests.hardware import hardware, run_with, with_one
from tests.judge.findings import found, only


def test_gpus_that_compute_and_copy_give_nothing() -> None:
    assert found(gpu_unusable, run_with()) == ()


@pytest.mark.parametrize(("end", "word"), [(Ending.HANG, "hangs"), (Ending.CRASH, "fails")])
def test_a_gpu_that_hangs_or_crashes_by_itself_fails(end: Ending, word: str) -> None:
    gpus = with_one(hardware().gpus, 1, end=end, problem="at multiply float32: died by SIGSEGV")
    finding = only(found(gpu_unusable, run_with(gpus=gpus)))
    assert (finding.blame, finding.severity) == (Blame.GPU, Severity.FAIL)
    assert finding.problem.startswith(f"the GPU {word} in a test without other GPUs and NCCL: ")
    assert "GPU 1" in finding.subject


def test_one_whose_data_was_wrong_is_another_checks_matter() -> None:
    assert found(gpu_unusable, run_with(gpus=with_one(hardware().gpus, 1, end=Ending.WRONG, problem="x"))) == ()
