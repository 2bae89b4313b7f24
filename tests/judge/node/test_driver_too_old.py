from __future__ import annotations

import pytest

from preflight.judge.node.driver_gpu_too_old import driver_too_old
from preflight.model.facts import DriverFacts, Gap, NodeFacts, SoftwareFacts, TorchFacts
from preflight.model.finding import Severity
from tests.judge.findings import on, on_gpus, only, skips
from tests.node_facts import NO_CUDA, gpu_case, gpu_node, node


def with_versions(driver: str | Gap, cuda: str | Gap) -> NodeFacts:
    torch = TorchFacts("2.13.0", cuda, "2.28.9", "/venv/torch")
    return gpu_node(driver=DriverFacts(driver, "12.4"), software=SoftwareFacts("3.11.7", "0.1.0", torch))


@pytest.mark.parametrize(
    ("driver", "cuda"),
    [("580.65.06", "13.0"), ("590.1", "13.2"), ("525.60.13", "12.8"), ("450.80.02", "11.8")],
)
def test_a_driver_runs_every_minor_version_of_its_cuda(driver: str, cuda: str) -> None:
    assert on_gpus(driver_too_old, with_versions(driver, cuda)) == ()


def test_a_cuda_that_is_in_no_table_is_not_guessed() -> None:
    (skip,) = skips(driver_too_old, gpu_case(nodes=(with_versions("1", "10.2"),)))
    assert "10.2" in skip.reason


def test_a_version_without_a_number_is_not_too_old() -> None:
    (skip,) = skips(driver_too_old, gpu_case(nodes=(with_versions("unknown", "12.8"),)))
    assert skip.reason == "the driver's version 'unknown' has no number"


@pytest.mark.parametrize(
    ("driver", "cuda", "wheel"),
    [("575.57.08", "13.0", "cu126"), ("525.60.11", "12.1", "cu118"), ("450.51", "11.0", "cu118")],
)
def test_an_older_driver_fails_and_a_torch_for_it_is_named(driver: str, cuda: str, wheel: str) -> None:
    finding = only(on_gpus(driver_too_old, with_versions(driver, cuda)))
    assert finding.severity is Severity.FAIL
    assert wheel in finding.fix


def test_a_torch_without_cuda_is_left_to_its_own_check() -> None:
    assert on_gpus(driver_too_old, with_versions("450", NO_CUDA)) == ()


def test_a_machine_without_gpus_needs_no_driver() -> None:
    assert on(driver_too_old, node()) == ()


def test_a_driver_that_does_not_tell_its_version_skips_the_check() -> None:
    assert skips(driver_too_old, gpu_case(nodes=(with_versions(Gap("denied"), "13.0"),)))
