from __future__ import annotations

import pytest

from preflight.judge.node.driver_gpu_too_old import gpu_too_old
from preflight.model.facts import Gap, NodeFacts, SoftwareFacts, TorchFacts
from preflight.model.finding import Severity
from tests.gpus import gpu
from tests.judge.findings import on_gpus, only, skips
from tests.node_facts import NO_CUDA, gpu_case, gpu_node


def with_capability(capability: str | Gap, cuda: str | Gap) -> NodeFacts:
    torch = TorchFacts("2.13.0", cuda, "2.28.9", "/venv/torch")
    one = gpu(0, compute_capability=capability, name="Tesla V100-SXM2-16GB")
    return gpu_node(1, gpus=(one,), software=SoftwareFacts("3.11.7", "0.1.0", torch))


@pytest.mark.parametrize(
    ("capability", "cuda"),
    [
        ("7.5", "13.0"),
        ("12.1", "13.0"),
        ("7.0", "12.8"),
        ("12.0", "12.8"),
        ("7.0", "12.6"),
        ("9.0", "12.1"),
    ],
)
def test_a_gpu_that_torch_holds_code_for_is_fine(capability: str, cuda: str) -> None:
    assert on_gpus(gpu_too_old, with_capability(capability, cuda)) == ()


def test_a_cuda_that_is_in_no_table_is_not_guessed() -> None:
    (skip,) = skips(gpu_too_old, gpu_case(nodes=(with_capability("7.0", "11.1"),)))
    assert "11.1" in skip.reason


@pytest.mark.parametrize(("capability", "cuda"), [("7.0", "13.0"), ("6.1", "12.8"), ("3.7", "12.1")])
def test_a_gpu_older_than_torchs_code_fails(capability: str, cuda: str) -> None:
    finding = only(on_gpus(gpu_too_old, with_capability(capability, cuda)))
    assert finding.severity is Severity.FAIL
    assert "V100" in finding.subject
    assert "cu126" in finding.fix


def test_a_gpu_newer_than_torchs_code_fails() -> None:
    assert "newer" in only(on_gpus(gpu_too_old, with_capability("10.0", "12.6"))).problem


def test_a_torch_without_cuda_is_left_to_its_own_check() -> None:
    assert on_gpus(gpu_too_old, with_capability("7.0", NO_CUDA)) == ()


def test_a_capability_that_could_not_be_read_skips_the_check() -> None:
    assert skips(gpu_too_old, gpu_case(nodes=(with_capability(Gap("the call hangs"), "13.0"),)))
