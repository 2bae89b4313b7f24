from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import pytest

from preflight.judge.run.p2p import p2p_slow
from preflight.model.finding import Blame, CheckOutcome, Severity
from preflight.model.gpu_test import PairLimit, PairSpeed, PairTruth
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
    assert (finding.blame, finding.severity, finding.subject) == (Blame.GPU, severity, "node1 GPU pair 0-1")
    assert "its links carry 450 GB/s one way" in finding.problem


@pytest.mark.parametrize(
    ("again", "expected"),
    [((), (Severity.FAIL, True)), (speeds(20.0), (Severity.FAIL, False)), (speeds(200.0), (Severity.WARN, False))],
)
def test_a_pair_accuses_only_when_it_is_slow_again_and_by_its_best(
    again: tuple[PairSpeed, ...], expected: tuple[Severity, bool]
) -> None:
    pairs = with_pair(20.0)
    timed = (replace(pairs[0], speeds=(*pairs[0].speeds, *again)), *pairs[1:])
    finding = only(found(p2p_slow, run_with(pairs=timed)))
    assert (finding.severity, finding.is_unconfirmed) == expected
    assert finding.parts == ("GPU-00000000+GPU-00000001",)


def test_a_pair_that_was_slow_once_and_is_as_fast_as_its_links_is_fine() -> None:
    pairs = with_pair(20.0)
    both = replace(pairs[0], speeds=(*pairs[0].speeds, *speeds(390.0)))
    assert found(p2p_slow, run_with(pairs=(both, *pairs[1:]))) == ()


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
    assert ended(p2p_slow, run) == (CheckOutcome.NOT_RUN, "no pair was timed (the quick profile times none)")
