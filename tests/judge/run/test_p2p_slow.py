from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import pytest

from preflight.judge.run.p2p import p2p_slow
from preflight.model.finding import Blame, CheckOutcome, Severity
from preflight.model.gpu_test import PairLimit, PairTruth
from tests.hardware import hardware, pair, run_with, speeds
from tests.judge.findings import ended, found, only


def with_pair(slow_gb_s: float, usual_gb_s: float = 390.0) -> tuple[PairTruth, ...]:
    pairs = tuple(pair(a, b, speeds=speeds(usual_gb_s)) for a, b in combinations(range(4), 2))
    return (replace(pairs[0], speeds=speeds(slow_gb_s)), *pairs[1:])


def test_pairs_at_most_of_their_links_rate_give_nothing() -> None:
    assert found(p2p_slow, run_with()) == ()


@pytest.mark.parametrize(("gb_s", "severity"), [(200.0, Severity.WARN), (20.0, Severity.FAIL)])
def test_a_pair_far_below_its_nvlinks_is_named(gb_s: float, severity: Severity) -> None:
    finding = only(found(p2p_slow, run_with(pairs=with_pair(gb_s))))
    assert (finding.blame, finding.severity, finding.subject) == (Blame.GPU, severity, "gpu1 GPUs 0-1")
    assert "its links carry 450 GB/s one way" in finding.problem


def test_over_pcie_only_pairs_that_are_joined_alike_tell() -> None:
    limits = tuple(PairLimit(each.a, each.b, "NODE", 63.0) for each in hardware().pairs)
    assert found(p2p_slow, run_with(pairs=with_pair(20.0, 20.0), pair_limits=limits)) == ()
    finding = only(found(p2p_slow, run_with(pairs=with_pair(10.0, 20.0), pair_limits=limits)))
    assert (finding.blame, finding.severity) == (Blame.HOST, Severity.WARN)
    assert "joined alike (NODE) reach 20.0 GB/s" in finding.problem


def test_a_pair_without_peer_access_is_not_held_to_its_links() -> None:
    denied = (replace(with_pair(20.0)[0], cuda=False), *with_pair(20.0)[1:])
    assert found(p2p_slow, run_with(pairs=denied)) == ()


def test_quick_measures_no_pair_and_judges_none() -> None:
    run = run_with(pairs=tuple(replace(each, speeds=()) for each in hardware().pairs))
    assert ended(p2p_slow, run) == (CheckOutcome.NOT_RUN, "no pair was timed (quick times none)")
