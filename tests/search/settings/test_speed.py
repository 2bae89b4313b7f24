"""What may make a default faster that works, and what is left out."""

from __future__ import annotations

from dataclasses import replace

import pytest

from preflight.model.facts import Gap, NodeFacts, known
from preflight.model.gpu import P2pStatus
from preflight.search.settings.candidate_plan import plan_nccl
from preflight.search.settings.node_view import view_of
from preflight.search.settings.speed import default_level, speed_candidates
from tests.gpus import gpu_p2p
from tests.node_facts import gpu_node, system
from tests.search.test_settings import with_nccl
from tests.topology import pcie_node, port

AMD = system(cpu_model="AMD EPYC 9554 64-Core Processor")
UNKNOWN = Gap("no wheel")


def fast(facts: NodeFacts) -> dict[str, tuple[tuple[str, str], ...]]:
    return {each.name: each.env for each in speed_candidates(view_of(facts, ()))[0]}


@pytest.mark.parametrize(
    ("version", "count", "is_amd", "level"),
    [("2.22.3", 4, False, "PXB"), ("2.22.3", 8, True, "SYS"), ("2.23.4", 8, True, "PXB"), ("2.23.4", 2, True, "SYS"),
     ("2.23.4", 2, False, "PXB"), (UNKNOWN, 4, False, "")],
)  # fmt: skip
def test_nccls_own_level_follows_version_cpu_and_number_of_gpus(
    version: str | Gap, count: int, is_amd: bool, level: str
) -> None:
    facts = with_nccl(pcie_node(("NODE",), count, system=AMD if is_amd else system()), version)
    assert default_level(view_of(facts, ())) == level


def test_further_peer_copies_are_timed_where_nccl_goes_through_host_memory_by_itself() -> None:
    assert fast(pcie_node(("PIX", "NODE", "SYS"), 4)) == {
        "NCCL_P2P_LEVEL=PHB": (("NCCL_P2P_LEVEL", "PHB"),),
        "NCCL_P2P_LEVEL=SYS": (("NCCL_P2P_LEVEL", "SYS"),),
    }
    assert fast(pcie_node(("PIX", "NODE"), 4)).keys() == {"NCCL_P2P_LEVEL=PHB"}


def test_peer_copies_are_left_away_for_speed_only_where_they_cross_a_host_bridge() -> None:
    old_amd = with_nccl(pcie_node(("NODE",), 4, system=AMD), "2.22.3")
    assert fast(old_amd) == {"NCCL_P2P_DISABLE=1": (("NCCL_P2P_DISABLE", "1"),)}
    bridged = with_nccl(pcie_node(("NV4", "SYS"), 4, system=AMD), "2.22.3")
    assert fast(bridged) == {"NCCL_P2P_LEVEL=NVL": (("NCCL_P2P_LEVEL", "NVL"),)}


@pytest.mark.parametrize("facts", [gpu_node(8), pcie_node(("PIX",), 4)])
def test_nvlink_and_a_common_switch_leave_nothing_to_time_and_the_reasons_are_told(facts: NodeFacts) -> None:
    candidates, left_out = speed_candidates(view_of(facts, ()))
    assert candidates == ()
    assert len(left_out) == 2
    assert all(each.reason for each in left_out)


def test_what_the_driver_denies_is_not_timed() -> None:
    no = P2pStatus.NOT_SUPPORTED
    facts = pcie_node(("SYS",), 2)
    facts = replace(facts, gpu_p2p=tuple(gpu_p2p(p.a, p.b, read=no, write=no) for p in known(facts.gpu_p2p)))
    assert fast(facts) == {}


def test_gpu_direct_is_left_out_on_one_node_with_the_reason() -> None:
    _, left_out = speed_candidates(view_of(gpu_node(hca_ports=(port(),)), ()))
    assert "one node" in {each.candidate: each.reason for each in left_out}["NCCL_NET_GDR_LEVEL"]


def test_candidates_for_speed_are_planned_for_the_longer_profiles_only() -> None:
    facts = pcie_node(("SYS",), 4)
    assert [each.name for each in plan_nccl(facts, (), (), for_speed=False).candidates] == ["default"]
    assert "NCCL_P2P_LEVEL=SYS" in [each.name for each in plan_nccl(facts, (), (), for_speed=True).candidates]


def test_the_reason_names_the_host_bridges_that_are_crossed_and_no_others() -> None:
    (candidate,) = speed_candidates(view_of(with_nccl(pcie_node(("NODE",), 4, system=AMD), "2.22.3"), ()))[0]
    assert "cross a host bridge (PHB);" in candidate.reason
