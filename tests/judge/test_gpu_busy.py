from __future__ import annotations

import pytest

from preflight.judge.gpu_busy import CHECK
from preflight.model.facts import Gap
from preflight.model.finding import Severity
from preflight.model.gpu import GpuProcess
from tests.facts import MIB, gpu_case, gpu_node
from tests.gpus import NO_PAGES, gpu
from tests.judge.findings import found, on_gpus, only

FOREIGN = GpuProcess(4242, 600 * MIB, "python3", 1001, is_ours=False)


@pytest.mark.parametrize("percent", [0, 5])
def test_an_idle_gpu_is_free(percent: int) -> None:
    assert on_gpus(CHECK, gpu_node(1, gpus=(gpu(0, utilization_percent=percent),))) == ()


def test_a_process_is_named_with_its_owner_and_memory() -> None:
    finding = only(on_gpus(CHECK, gpu_node(gpus=(gpu(0), gpu(1, processes=(FOREIGN,))))))
    assert finding.severity is Severity.WARN
    assert "pid 4242 python3 of uid 1001, 600 MiB" in finding.problem


def test_a_process_of_the_same_user_is_called_yours() -> None:
    mine = GpuProcess(7, Gap("not told"), Gap("hidden"), 1000, is_ours=True)
    assert "pid 7 of yours" in only(on_gpus(CHECK, gpu_node(1, gpus=(gpu(0, processes=(mine,)),)))).problem


def test_work_without_a_visible_process_is_found_by_utilisation() -> None:
    assert "97 % busy" in only(on_gpus(CHECK, gpu_node(1, gpus=(gpu(0, utilization_percent=97),)))).problem


def test_a_busy_gpu_that_is_not_used_does_not_matter() -> None:
    busy = gpu_node(gpus=(gpu(0), gpu(1, processes=(FOREIGN,))))
    assert found(CHECK, gpu_case(nodes=(busy,), gpus=(0,))) == ()


def test_a_gpu_that_tells_no_utilisation_is_free_without_processes() -> None:
    assert on_gpus(CHECK, gpu_node(1, gpus=(gpu(0, utilization_percent=NO_PAGES),))) == ()
