from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from preflight.judge.node.gpu_memory import gpu_memory_errors
from preflight.model.facts import Gap
from preflight.model.finding import Severity
from preflight.model.gpu import EccCounts, RetiredPages, RowRemap
from tests.gpus import gpu
from tests.judge.findings import on_gpus, only, skips
from tests.node_facts import gpu_case, gpu_node

FAULTS: list[tuple[dict[str, Any], Severity, str]] = [
    ({"ecc": EccCounts(0, 2, 0, 2)}, Severity.FAIL, "2 uncorrectable memory errors"),
    ({"row_remap": RowRemap(0, 1, is_pending=True, has_failed=False)}, Severity.WARN, "replaces it only"),
    ({"row_remap": RowRemap(0, 9, is_pending=False, has_failed=True)}, Severity.FAIL, "could not replace"),
    ({"retired_pages": RetiredPages(0, 1, is_pending=True)}, Severity.WARN, "retires it only"),
    ({"retired_pages": RetiredPages(60, 4, is_pending=False)}, Severity.FAIL, "64 memory pages"),
]


@pytest.mark.parametrize(("values", "severity", "words"), FAULTS)
def test_errors_and_repairs_are_found(values: dict[str, Any], severity: Severity, words: str) -> None:
    finding = only(on_gpus(gpu_memory_errors, gpu_node(1, gpus=(gpu(0, **values),))))
    assert finding.severity is severity
    assert words in finding.problem


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"ecc": EccCounts(12, 0, 4000, 1)},
        {"row_remap": RowRemap(3, 1, is_pending=False, has_failed=False)},
        {"retired_pages": RetiredPages(2, 0, is_pending=False)},
    ],
)
def test_what_was_corrected_or_repaired_is_no_fault(values: dict[str, Any]) -> None:
    assert on_gpus(gpu_memory_errors, gpu_node(1, gpus=(gpu(0, **values),))) == ()


def test_several_faults_of_a_gpu_are_one_finding_of_the_worst() -> None:
    both = gpu(0, ecc=EccCounts(0, 1, 0, 1), row_remap=RowRemap(0, 1, is_pending=True, has_failed=False))
    finding = only(on_gpus(gpu_memory_errors, gpu_node(1, gpus=(both,))))
    assert (finding.severity, len(finding.evidence)) == (Severity.FAIL, 2)
    assert "nvidia-smi --gpu-reset" in finding.fix
    failed = replace(both, row_remap=RowRemap(0, 9, is_pending=False, has_failed=True))
    assert "out of service" in only(on_gpus(gpu_memory_errors, gpu_node(1, gpus=(failed,)))).fix  # no reset mends that


def test_counts_that_may_not_be_read_skip_the_check() -> None:
    assert skips(
        gpu_memory_errors, gpu_case(nodes=(gpu_node(1, gpus=(gpu(0, row_remap=Gap("NVMLError_NoPermission: no")),)),))
    )
