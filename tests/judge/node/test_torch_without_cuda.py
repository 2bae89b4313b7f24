from __future__ import annotations

import pytest

from preflight.judge.node.torch import torch_without_cuda
from preflight.model.facts import DriverFacts, Gap, NodeFacts, SoftwareFacts
from preflight.model.finding import Blame, Severity
from tests.judge.findings import found, on, on_gpus, only
from tests.node_facts import TORCH, case, gpu_node, node

CPU_BUILD = SoftwareFacts("3.11.7", "0.1.0", TORCH)


def with_driver(driver: DriverFacts | Gap) -> NodeFacts:
    return gpu_node(software=CPU_BUILD, driver=driver)


def test_a_torch_with_cuda_is_fine() -> None:
    assert on_gpus(torch_without_cuda, gpu_node()) == ()


def test_a_torch_without_cuda_is_fine_where_there_is_no_gpu() -> None:
    assert on(torch_without_cuda, node()) == ()


def test_a_torch_without_cuda_beside_gpus_fails_and_blames_the_configuration() -> None:
    finding = only(on_gpus(torch_without_cuda, gpu_node(software=CPU_BUILD)))
    assert (finding.severity, finding.blame) == (Severity.FAIL, Blame.CONFIGURATION)
    assert "torch 2.13.0+cpu was built without CUDA" in finding.problem


@pytest.mark.parametrize(("cuda", "wheel"), [("13.0", "cu130"), ("12.4", "cu126"), ("11.8", "cu118")])
def test_the_fix_is_a_build_that_the_driver_runs(cuda: str, wheel: str) -> None:
    assert f"whl/{wheel}" in only(on_gpus(torch_without_cuda, with_driver(DriverFacts("1.2", cuda)))).fix


def test_without_a_driver_the_fix_says_how_to_choose() -> None:
    assert "nvidia-smi" in only(on_gpus(torch_without_cuda, with_driver(Gap("no NVML")))).fix


def test_with_gloo_asked_for_it_is_only_a_warning() -> None:
    assert only(found(torch_without_cuda, case(nodes=(gpu_node(software=CPU_BUILD),)))).severity is Severity.WARN


def test_a_missing_torch_is_another_checks_matter() -> None:
    assert on_gpus(torch_without_cuda, gpu_node(software=SoftwareFacts("3.11.7", "0.1.0", Gap("not installed")))) == ()
