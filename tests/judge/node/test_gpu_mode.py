from __future__ import annotations

from typing import Any

import pytest

from preflight.judge.node.gpu_mode_recovery import gpu_mode
from preflight.model.finding import Severity
from preflight.model.gpu import ComputeMode, Mode
from tests.gpus import NO_PAGES, gpu
from tests.judge.findings import found, on_gpus, only
from tests.node_facts import gpu_case, gpu_node


@pytest.mark.parametrize(
    ("values", "severity"),
    [
        ({"mig_mode": Mode.ENABLED}, Severity.FAIL),
        ({"compute_mode": ComputeMode.PROHIBITED}, Severity.FAIL),
        ({"compute_mode": ComputeMode.EXCLUSIVE_PROCESS}, Severity.WARN),
        ({"compute_mode": ComputeMode.EXCLUSIVE_THREAD}, Severity.WARN),
    ],
)
def test_a_gpu_that_is_cut_up_or_reserved_is_found(values: dict[str, Any], severity: Severity) -> None:
    finding = only(on_gpus(gpu_mode, gpu_node(gpus=(gpu(0), gpu(1, **values)))))
    assert finding.severity is severity
    assert "-i 1" in finding.fix


def test_default_modes_are_fine_and_so_is_a_gpu_without_mig() -> None:
    assert on_gpus(gpu_mode, gpu_node(gpus=(gpu(0), gpu(1, mig_mode=NO_PAGES)))) == ()


def test_a_gpu_that_is_not_used_may_be_cut_up() -> None:
    cut = gpu_node(gpus=(gpu(0), gpu(1, mig_mode=Mode.ENABLED)))
    assert found(gpu_mode, gpu_case(nodes=(cut,), gpus=(0,))) == ()
