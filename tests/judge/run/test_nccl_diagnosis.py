from __future__ import annotations

from typing import Any

import pytest

from preflight.judge.check import Case
from preflight.judge.run.nccl_diagnosis import nccl_diagnosis
from preflight.model.facts import GpuPath
from preflight.model.finding import Severity
from preflight.model.gpu_test import Ending
from preflight.model.nccl_diagnostics import NcclDiagnosis
from tests.hardware import hardware, pair
from tests.judge.findings import applies_not, found, only, skips
from tests.node_facts import gpu_case, gpu_node

VERIFIED = "p2p: verified P2P access in both directions between every GPU pair (2 peer accesses)"
FAILED = "p2p: read mismatch srcRank=1 srcCudaDev=1 dstRank=0 dstCudaDev=0 path=PIX expected=0x8 got=0x0"
ECC = "ECC: uncorrected volatile errors on rank 1 (gpu-3)"


def diagnosed(*lines: str, problem: str = "") -> tuple[NcclDiagnosis, ...]:
    return (NcclDiagnosis("2.32.3", lines, problem, 2.0),)


def of(*lines: str, ending: Ending | None = Ending.OK, problem: str = "", **overrides: Any) -> Case:
    tested = {} if ending is None else {"hardware": hardware(2, pairs=(pair(end=ending),))}
    return gpu_case(diagnosis=diagnosed(*lines, problem=problem), **{"gpus": (0, 1), **tested, **overrides})


def test_two_witnesses_that_saw_nothing_give_nothing() -> None:
    assert found(nccl_diagnosis, of(VERIFIED)) == ()


def test_without_a_diagnosis_nothing_is_said() -> None:
    assert applies_not(nccl_diagnosis, gpu_case()).startswith("NCCL's own diagnosis")


@pytest.mark.parametrize(
    ("ending", "severity", "words"),
    [
        (Ending.OK, Severity.WARN, "preflight's own copies arrived"),
        (Ending.WRONG, Severity.INFO, "preflight's own test agrees: data does not arrive"),
        (Ending.HANG, Severity.INFO, "preflight's own test agrees: copies hang"),
        (Ending.SKIPPED, Severity.WARN, "preflight did not test this itself"),
        (None, Severity.WARN, "preflight did not test this itself"),
    ],
)
def test_a_pair_that_nccl_names_says_what_preflight_saw(ending: Ending | None, severity: Severity, words: str) -> None:
    finding = only(found(nccl_diagnosis, of(FAILED, ending=ending)))
    assert (finding.severity, finding.subject.endswith("GPU pair 0-1")) == (severity, True)
    assert words in finding.problem and FAILED in str(finding.evidence)


def test_ranks_are_gpus_by_their_place_among_the_chosen() -> None:
    finding = only(found(nccl_diagnosis, of(FAILED, ending=None, gpus=(6, 2))))
    assert finding.subject.endswith("GPU pair 2-6")


def test_a_rank_beyond_the_chosen_gpus_names_no_pair() -> None:
    beyond = FAILED.replace("srcRank=1", "srcRank=2")
    assert not any("GPU pair" in finding.subject for finding in found(nccl_diagnosis, of(beyond, ending=None)))


def test_what_preflight_alone_saw_is_said_with_the_reach_of_both() -> None:
    finding = only(found(nccl_diagnosis, of(VERIFIED, ending=Ending.HANG)))
    assert (
        finding.severity is Severity.WARN
        and "copies hang in preflight's own test, but NCCL's own diagnosis found no fault; " in finding.problem
    )
    assert VERIFIED in str(finding.evidence)


def test_another_failure_is_given_in_ncclss_words() -> None:
    assert only(found(nccl_diagnosis, of(VERIFIED, ECC))).problem == f"NCCL reports: {ECC}"


def test_a_diagnosis_that_hung_is_no_witness() -> None:
    case = of(ending=Ending.HANG, problem="all 2 ranks hung at init")
    (skipped,) = skips(nccl_diagnosis, case)
    assert skipped.reason.endswith("all 2 ranks hung at init")


def test_the_repair_fits_the_kind_of_path() -> None:
    linked, pcie = gpu_node(2), gpu_node(2, gpu_paths=(GpuPath(0, 1, "PHB"),))
    over_pcie, over_nvlink = (only(found(nccl_diagnosis, of(FAILED, nodes=(each,)))) for each in (pcie, linked))
    assert "iommu=pt" in over_pcie.fix and "iommu" not in over_nvlink.fix and "nvidia-smi nvlink -s" in over_nvlink.fix
