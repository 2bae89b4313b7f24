"""Measured speed beside what the way that was really taken should give."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preflight.errors import NotApplicable, UnreadableFact
from preflight.judge.run.busbw_low import FAR_TOO_LOW, LOW, SURE_FAR_TOO_LOW, SURE_LOW, busbw_low
from preflight.model.collective import Collective
from preflight.model.facts import Gap, NodeFacts
from preflight.model.finding import Finding, Severity
from preflight.model.transport import carriers_from
from preflight.model.trial import Outcome, RankTime, TrialResult, without_speeds
from preflight.search.gpus.link_speeds import expected_busbw
from preflight.system.links import load_links
from tests.node_facts import GIB, MIB, gpu_case, gpu_node, result, trial
from tests.topology import pcie_node

LINKS = load_links()
RING = ("0>1 via P2P/CUMEM", "network Socket")
NVLS = (*RING, "NVLS")


def judged(*trials: TrialResult, count: int = 8, node: NodeFacts | None = None) -> list[Finding]:
    facts = node or gpu_node(count)
    gpus = tuple(range(count))
    return list(busbw_low.judge(gpu_case(*trials, nodes=(facts,), links=LINKS, world_size=count, gpus=gpus)))


def measured(gb_s: float, size: int = GIB, transport: tuple[str, ...] = NVLS, **changes: Any) -> TrialResult:
    one = replace(result(Collective.ALL_REDUCE, size, (1000.0,) * 8), busbw_gb_s=gb_s)
    return trial(world_size=8, results=(one,), transport=transport, **changes)


def healthy(transport: tuple[str, ...], count: int = 8, node: NodeFacts | None = None, size: int = GIB) -> float:
    facts = node or gpu_node(count)
    return expected_busbw(LINKS, facts, range(count), Collective.ALL_REDUCE, size, carriers_from(transport)).low_gb_s


@pytest.mark.parametrize("gb_s", [480.0, 365.0])
def test_what_healthy_machines_reach_is_no_finding(gb_s: float) -> None:
    assert judged(measured(gb_s)) == []


@pytest.mark.parametrize(("share", "severity"), [(0.5, Severity.WARN), (0.2, Severity.FAIL)])
def test_much_less_than_healthy_warns_and_very_much_less_fails(share: float, severity: Severity) -> None:
    (finding,) = judged(measured(share * healthy(NVLS)))
    assert finding.severity is severity
    assert "450 GB/s that its links can carry" in finding.problem


def test_what_is_measured_is_compared_with_the_way_that_was_taken() -> None:
    through_host = ("0>1 via SHM/direct/direct",)
    assert healthy(through_host) < healthy(RING) < healthy(NVLS)
    assert judged(measured(25.0, transport=through_host)) == []
    assert [f.severity for f in judged(measured(25.0, transport=RING))] == [Severity.FAIL]


def test_four_gpus_are_not_compared_with_the_figure_of_eight() -> None:
    assert healthy(NVLS, 4) < healthy(NVLS, 8)


@pytest.mark.parametrize("size", [8, MIB, 32 * MIB])
def test_only_large_sizes_are_judged(size: int) -> None:
    with pytest.raises(NotApplicable, match="64 MiB"):
        judged(measured(0.1, size=size))


def test_pcie_alone_is_judged_by_its_own_links() -> None:
    node = pcie_node(("PIX",), 8)
    assert judged(measured(40.0, transport=RING), node=node) == []
    (finding,) = judged(measured(3.0, transport=RING), node=node)
    assert finding.severity is Severity.FAIL
    assert "63.0 GB/s" in finding.problem


def test_the_latest_rank_is_mentioned_and_not_called_the_slow_one() -> None:
    ranks = tuple(RankTime(i, 1000.0, 3.0 if i == 5 else 1.0) for i in range(8))
    slow = replace(result(size_bytes=GIB), busbw_gb_s=100.0, ranks=ranks)
    (finding,) = judged(trial(world_size=8, results=(slow,), transport=NVLS))
    assert "3.0 times later than the others, so this rank or a link near it in the ring is slow" in finding.problem


def test_the_collective_that_falls_shortest_counts() -> None:
    fine = replace(result(size_bytes=GIB), busbw_gb_s=480.0)
    slow = replace(result(Collective.ALL_GATHER, GIB), busbw_gb_s=50.0)
    (finding,) = judged(trial(world_size=8, results=(fine, slow), transport=NVLS))
    assert "all_gather" in finding.subject


def test_where_the_default_fails_what_works_with_the_fewest_settings_is_judged() -> None:
    cure = measured(1.0, candidate="x", env=(("NCCL_P2P_DISABLE", "1"),), transport=("0>1 via SHM/direct",))
    (finding,) = judged(trial(outcome=Outcome.HANG), cure)
    assert finding.subject.startswith("trial x")


@pytest.mark.parametrize("transport", [("0>1 via NET/Socket/0",), ("0>1 via NET/IB/0",)])
def test_the_network_between_ranks_of_a_node_and_a_busy_gpu_can_not_be_judged(transport: tuple[str, ...]) -> None:
    with pytest.raises(NotApplicable, match="over the network"):
        judged(measured(1.0, transport=transport))
    with pytest.raises(UnreadableFact, match="somebody"):
        judged(without_speeds(measured(1.0), "somebody else"))
    assert isinstance(without_speeds(measured(1.0), "x").results[0].busbw_gb_s, Gap)


@given(st.floats(0.01, 2.0))
def test_the_severity_of_a_smaller_size_follows_wider_shares(share: float) -> None:
    low = share * healthy(NVLS, size=128 * MIB)
    found = [finding.severity for finding in judged(measured(low, size=128 * MIB))]
    wanted = [Severity.FAIL] if share < FAR_TOO_LOW.value else [Severity.WARN] if share < LOW.value else []
    assert found == wanted or min(abs(share - FAR_TOO_LOW.value), abs(share - LOW.value)) < 1e-6


@given(st.floats(0.01, 2.0))
def test_the_severity_follows_the_share(share: float) -> None:
    found = [finding.severity for finding in judged(measured(share * healthy(NVLS)))]
    wanted = [Severity.FAIL] if share < SURE_FAR_TOO_LOW.value else [Severity.WARN] if share < SURE_LOW.value else []
    assert found == wanted or min(abs(share - SURE_FAR_TOO_LOW.value), abs(share - SURE_LOW.value)) < 1e-6


def test_the_ways_that_were_taken_are_evidence() -> None:
    for transport, ways in ((NVLS, "NVLS, P2P/CUMEM"), (RING, "P2P/CUMEM")):
        (finding,) = judged(measured(0.2 * healthy(transport), transport=transport))
        assert [each.value for each in finding.evidence if each.what == "paths of the data"] == [ways]
