"""Bounds learnt from good nodes reject few good ones, find losses, and say what they can't find."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preflight.errors import UsageError
from preflight.fleet.baseline import Measured, learn, nodes_to_detect
from preflight.model.baseline import Baseline, Point, judge_node
from preflight.model.codec import decode, encode
from preflight.model.collective import Collective
from preflight.model.gap import Gap

POINTS: list[Point] = [(Collective.ALL_REDUCE, 1 << shift) for shift in (10, 24, 28, 30)]


def node(chance: random.Random, times: int, between: float = 0.01, within: float = 0.03) -> list[dict[Point, float]]:
    factor = chance.gauss(0, between)
    return [{point: 300 * math.exp(factor + chance.gauss(0, within)) for point in POINTS} for _ in range(times)]


def good_nodes(count: int = 20, times: int = 3, seed: int = 1) -> Measured:
    chance = random.Random(seed)
    return {f"n{i}": node(chance, times) for i in range(count)}


def test_a_node_that_lost_a_third_is_below_and_a_good_one_is_not() -> None:
    baseline = learn((("gpu", "H100"),), good_nodes())
    good = [dict.fromkeys(POINTS, 300.0)]
    bad = [dict.fromkeys(POINTS, 200.0)]
    assert not any(each.is_below for each in judge_node(baseline, good))
    assert all(each.is_below for each in judge_node(baseline, bad) if each.reference.group == "large")


def test_repetitions_narrow_what_is_usual() -> None:
    baseline = learn((), good_nodes())
    once, often = (judge_node(baseline, [dict.fromkeys(POINTS, 300.0)] * times)[0] for times in (1, 4))
    assert once.usual < often.usual < 1 and once.floor <= often.floor


def test_more_nodes_narrow_what_is_usual() -> None:
    few, many = (learn((), good_nodes(count)) for count in (6, 60))
    usual = [judge_node(each, [dict.fromkeys(POINTS, 300.0)])[0].usual for each in (few, many)]
    assert usual[0] < usual[1]


def test_a_wild_node_among_the_good_ones_hardly_moves_the_bounds() -> None:
    measured = good_nodes()
    clean = learn((), measured)
    wild = learn((), measured | {"n0": [dict.fromkeys(POINTS, 3.0)] * 3})
    for one, other in zip(clean.references, wild.references, strict=True):
        assert other.busbw_gb_s == pytest.approx(one.busbw_gb_s, rel=0.02)
        assert other.between_nodes < 0.03


def test_nodes_measured_once_give_no_spread_of_repetitions() -> None:
    baseline = learn((), good_nodes(times=1))
    assert all(isinstance(each.between_repetitions, Gap) for each in baseline.references)


def test_it_says_how_many_nodes_a_small_loss_needs_or_that_none_are_enough() -> None:
    quiet = {f"n{i}": node(random.Random(i), 3, between=0.005, within=0.003) for i in range(20)}
    steady = learn((), quiet).references
    needed = nodes_to_detect(steady, steady[0], 0.05)
    assert isinstance(needed, int) and 5 <= needed <= 30
    noisy = learn((), good_nodes()).references
    assert isinstance(nodes_to_detect(noisy, noisy[-1], 0.01), Gap)


@pytest.mark.parametrize("measured", [{}, good_nodes(4), {f"n{i}": [{POINTS[i]: 1.0}] for i in range(4)}])
def test_too_few_nodes_or_nothing_in_common_is_an_error(measured: Measured) -> None:
    with pytest.raises(UsageError, match="at least 5"):
        learn((), measured)


def test_a_size_that_the_baseline_does_not_know_is_not_judged() -> None:
    baseline = learn((), good_nodes())
    assert judge_node(baseline, [{(Collective.BROADCAST, 8): 1.0}]) == ()


def test_a_baseline_round_trips() -> None:
    baseline = learn((("gpu", "H100"),), good_nodes(times=1))
    assert decode(Baseline, encode(baseline)) == baseline


@given(st.floats(0.3, 2), st.floats(0.3, 2))
def test_a_slower_node_never_looks_better(one: float, other: float) -> None:
    baseline = learn((), good_nodes())
    slow, fast = sorted((one, other))
    judged = [judge_node(baseline, [dict.fromkeys(POINTS, 300 * share)]) for share in (slow, fast)]
    for low, high in zip(*judged, strict=True):
        assert low.share <= high.share
        assert high.is_below <= low.is_below
