from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from preflight.judge.check import Case, run_checks
from preflight.judge.pci_fabric import WITHOUT_P2P
from preflight.judge.run.p2p import p2p_data
from preflight.judge.verdict import decide
from preflight.model.facts import Gap, GpuPath
from preflight.model.finding import Blame, CheckOutcome, Severity
from preflight.model.gpu_test import Ending
from preflight.model.repairs import UNPROTECTED
from preflight.model.report import NodeVerdict
from preflight.model.trial import Outcome
from tests.hardware import hardware, pair, run_with
from tests.judge.findings import applies_not, ended, found, only, skips
from tests.node_facts import advice, case, gpu_case, gpu_node, system, trial
from tests.topology import device

LOST: dict[str, Any] = {"end": Ending.WRONG, "problem": "never written by sm (a to b; 64 MiB)"}
OVER_PCIE = (GpuPath(0, 1, "PHB"),)


def over_pcie(*trials: object, **changes: object) -> Case:
    node = gpu_node(2, gpu_paths=OVER_PCIE)
    return replace(gpu_case(nodes=(node,), hardware=hardware(2, pairs=(pair(**LOST),))), **changes)  # type: ignore[arg-type]


def test_pairs_whose_bytes_all_arrive_give_nothing() -> None:
    assert found(p2p_data, run_with()) == ()


def test_lost_bytes_over_pcie_fail_the_host_and_say_what_no_setting_protects() -> None:
    finding = only(found(p2p_data, over_pcie()))
    assert (finding.blame, finding.severity, finding.subject) == (Blame.HOST, Severity.FAIL, "node1 GPU pair 0-1")
    assert UNPROTECTED in finding.problem
    assert "iommu=pt" in finding.fix
    assert "never written by sm" in finding.evidence[0].value
    assert "driver says ok, CUDA yes" in finding.evidence[0].value


def test_over_nvlink_the_gpu_is_to_blame_and_the_iommu_is_not() -> None:
    finding = only(found(p2p_data, run_with(2, pairs=(pair(**LOST),))))
    assert (finding.blame, finding.severity) == (Blame.GPU, Severity.FAIL)
    assert "iommu" not in finding.fix
    assert "nvlink -s" in finding.fix
    failed = only(found(p2p_data, replace(run_with(2, pairs=(pair(**LOST),)), trials=(trial(outcome=Outcome.HANG),))))
    assert (
        "set NCCL_P2P_DISABLE=1" in failed.workaround and "NCCL_P2P_LEVEL" not in failed.workaround
    )  # which keeps NVLink


def test_until_the_repair_nvlinks_of_other_pairs_are_kept() -> None:
    hung = (trial(outcome=Outcome.HANG),)
    assert only(found(p2p_data, over_pcie(trials=hung))).workaround == WITHOUT_P2P
    node = gpu_node(2, gpu_paths=(*OVER_PCIE, GpuPath(2, 3, "NV4")))
    assert "NCCL_P2P_LEVEL=NVL" in only(found(p2p_data, over_pcie(trials=hung, nodes=(node,)))).workaround
    pairs = (pair(**LOST), pair(2, 3, **LOST))
    both = found(p2p_data, over_pcie(trials=hung, nodes=(node,), hardware=hardware(4, pairs=pairs)))
    assert [each.workaround == WITHOUT_P2P for each in both] == [
        True,
        True,
    ]


def test_a_translating_iommu_is_evidence() -> None:
    run = over_pcie()
    run = replace(run, nodes=(replace(run.nodes[0], pci=(device("0000:10:00.0", iommu_type="DMA-FQ"),)),))
    assert ("IOMMU groups", "translating (DMA-FQ)") in [(e.what, e.value) for e in only(found(p2p_data, run)).evidence]


def test_in_a_virtual_machine_the_host_below_has_to_be_repaired() -> None:
    run = over_pcie()
    virtual = replace(run, nodes=(replace(run.nodes[0], system=system(hypervisor="kvm")),))
    assert "pass-through" in only(found(p2p_data, virtual)).fix


def test_a_pair_that_hangs_and_one_that_is_lost_are_one_finding_with_both_told() -> None:
    pairs = (pair(0, 1, **LOST), pair(0, 2, end=Ending.HANG, problem="hung at copy 3/18"), pair(1, 2))
    finding = only(found(p2p_data, run_with(3, pairs=pairs)))
    assert finding.subject == "node1 GPU pairs 0-1, 0-2"
    assert finding.problem.startswith("data does not arrive, copies hang")


P2P_OFF = trial("no-p2p", env=(("NCCL_P2P_DISABLE", "1"),))


def test_where_a_trial_works_without_peer_access_the_job_is_only_warned_and_the_node_is_rejected() -> None:
    broken = over_pcie(trials=(trial(outcome=Outcome.WRONG_DATA), P2P_OFF))
    assert only(found(p2p_data, broken)).severity is Severity.WARN
    findings, skipped, _ = run_checks((p2p_data,), broken)
    decision = decide(
        broken, findings, skipped, broken.trials, advice(env=(("NCCL_P2P_DISABLE", "1"),)), (),
        strict=False, accept=True, cpu_path=False,
    )  # fmt: skip
    assert decision.node_verdict is NodeVerdict.REJECT


@pytest.mark.parametrize(
    ("transport", "severity"),
    [((), Severity.FAIL), (("0>1 via P2P/CUMEM",), Severity.FAIL), (("0>1 via SHM/direct",), Severity.WARN)],
)
def test_a_default_that_passed_proves_nothing_where_its_data_may_have_gone_that_way(
    transport: tuple[str, ...], severity: Severity
) -> None:
    assert only(found(p2p_data, over_pcie(trials=(trial(transport=transport),)))).severity is severity


def test_p2p_level_nvl_is_safe_for_pcie_pairs_and_not_for_nvlink_ones() -> None:
    level = trial("nvl", env=(("NCCL_P2P_LEVEL", "NVL"),))
    assert only(found(p2p_data, over_pcie(trials=(level,)))).severity is Severity.WARN
    nvlink = replace(run_with(2, pairs=(pair(**LOST),)), trials=(level,))
    assert only(found(p2p_data, nvlink)).severity is Severity.FAIL


@pytest.mark.parametrize("end", [Ending.INCONCLUSIVE, Ending.SKIPPED])
def test_a_pair_without_memory_or_time_for_the_test_is_no_fault_and_no_pass(end: Ending) -> None:
    skip = skips(p2p_data, run_with(2, pairs=(pair(end=end, problem="CUDA out of memory"),)))
    assert [each.reason for each in skip] == ["GPUs 0 and 1: CUDA out of memory"]


def test_tests_that_did_not_run_are_a_skip_and_the_node_is_not_accepted() -> None:
    run = gpu_case(hardware=Gap("the GPUs were not tested: the deadline came"))
    findings, skipped, _ = run_checks((p2p_data,), run)
    assert findings == ()
    decision = decide(
        run, findings, skipped, run.trials, advice(), (), strict=False, accept=True, cpu_path=False
    )  # fmt: skip
    assert decision.node_verdict is NodeVerdict.UNKNOWN
    assert "the deadline came" in decision.headline


def test_on_the_cpu_path_and_for_probe_nothing_is_asked() -> None:
    assert applies_not(p2p_data, case(hardware=Gap("CPU path: no GPU was tested")))
    assert ended(p2p_data, gpu_case()) == (CheckOutcome.NOT_RUN, "the GPUs were not tested")


def test_a_single_gpu_has_no_pair() -> None:
    assert applies_not(p2p_data, run_with(1)) == "a single GPU has no peer"
