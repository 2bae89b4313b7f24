from __future__ import annotations

from dataclasses import replace

import pytest

from preflight.judge.node.p2p_refused import p2p_refused
from preflight.model.facts import DriverFacts, Gap, GpuPath, NodeFacts
from preflight.model.finding import Severity
from preflight.model.gpu import Mode, P2pStatus
from tests.gpus import NO_PAGES, gpu, gpu_p2p
from tests.judge.findings import found, on_gpus, only, skips
from tests.node_facts import gpu_case, gpu_node


def pair(status: P2pStatus | Gap, level: str = "PIX") -> NodeFacts:
    return gpu_node(gpu_paths=(GpuPath(0, 1, level),), gpu_p2p=(gpu_p2p(0, 1, read=status, write=status),))


@pytest.mark.parametrize("status", [P2pStatus.OK, P2pStatus.NOT_SUPPORTED, P2pStatus.GPU_NOT_SUPPORTED, NO_PAGES])
def test_what_gpus_without_nvlink_can_do_or_never_could_is_fine(status: P2pStatus | Gap) -> None:
    assert on_gpus(p2p_refused, pair(status)) == ()


def test_peer_access_that_was_switched_off_is_a_warning() -> None:
    finding = only(on_gpus(p2p_refused, pair(P2pStatus.DISABLED_BY_REGKEY)))
    assert (finding.severity, finding.subject) == (Severity.WARN, "node1 GPU pair 0-1")
    assert "NVreg" in finding.fix


@pytest.mark.parametrize("status", [P2pStatus.CHIPSET_NOT_SUPPORTED, P2pStatus.TOPOLOGY_NOT_SUPPORTED])
def test_what_the_board_can_not_do_is_only_told(status: P2pStatus) -> None:
    assert only(on_gpus(p2p_refused, pair(status))).severity is Severity.INFO


def over_nvlink(status: P2pStatus, driver: str) -> Severity:
    node = replace(pair(status, "NV18"), driver=DriverFacts(driver, "12.2"))
    finding = only(on_gpus(p2p_refused, node))
    assert "although NVLinks join them" in finding.problem
    return finding.severity


def test_a_refusal_over_nvlink_fails_where_the_drivers_word_is_right() -> None:
    assert over_nvlink(P2pStatus.NOT_SUPPORTED, "535.183.06") is Severity.FAIL
    assert over_nvlink(P2pStatus.NOT_SUPPORTED, "535.183.05") is Severity.WARN
    assert over_nvlink(P2pStatus.UNKNOWN, "580.95.05") is Severity.WARN


def test_instances_have_no_peer_access_by_design() -> None:
    node = pair(P2pStatus.NOT_SUPPORTED, "NV18")
    cut = replace(node, gpus=(gpu(0), gpu(1, mig_mode=Mode.ENABLED)))
    assert on_gpus(p2p_refused, cut) == ()


def test_many_pairs_with_one_reason_are_one_finding() -> None:
    pairs = tuple(gpu_p2p(path.a, path.b, read=P2pStatus.NOT_SUPPORTED) for path in gpu_node(8).gpu_paths)  # type: ignore[union-attr]
    assert "0-1, 0-2, 0-3, 0-4, 0-5, 0-6 ..." in only(on_gpus(p2p_refused, gpu_node(8, gpu_p2p=pairs))).subject


def test_pairs_that_are_not_used_do_not_matter() -> None:
    assert found(p2p_refused, gpu_case(nodes=(pair(P2pStatus.DISABLED_BY_REGKEY),), gpus=(0,))) == ()


def test_a_status_that_could_not_be_read_skips_the_check() -> None:
    assert skips(p2p_refused, gpu_case(nodes=(pair(Gap("the call hangs")),)))


@pytest.mark.parametrize("is_confidential", [True, False])
def test_confidential_computing_refuses_peer_access_by_design(is_confidential: bool) -> None:
    driver = DriverFacts("580.95.05", "13.0", is_confidential=is_confidential)
    finding = only(on_gpus(p2p_refused, replace(pair(P2pStatus.CHIPSET_NOT_SUPPORTED, "NV18"), driver=driver)))
    assert finding.severity is (Severity.INFO if is_confidential else Severity.FAIL)
    assert ("confidential computing" in finding.fix) is is_confidential
