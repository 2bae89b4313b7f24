"""Medians and quantiles against what the tables and the laws say."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preflight.model.stats import robust_centre, robust_spread, t_quantile

VALUES = st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=40)


@given(VALUES, st.floats(0.1, 10), st.floats(-100, 100))
def test_centre_and_spread_follow_scale_and_shift(values: list[float], scale: float, shift: float) -> None:
    moved = [scale * value + shift for value in values]
    assert robust_centre(moved) == pytest.approx(scale * robust_centre(values) + shift, abs=1e-6)
    assert robust_spread(moved) == pytest.approx(scale * robust_spread(values), abs=1e-6)


def test_the_spread_of_normal_values_is_their_standard_deviation() -> None:
    chance = random.Random(5)
    assert robust_spread([chance.gauss(0, 2) for _ in range(2000)]) == pytest.approx(2, rel=0.05)


@pytest.mark.parametrize(
    ("probability", "freedom", "value"), [(0.99, 5, 3.365), (0.99, 10, 2.764), (0.99, 30, 2.457), (0.999, 15, 3.733)]
)
def test_quantiles_agree_with_the_tables(probability: float, freedom: float, value: float) -> None:
    assert t_quantile(freedom, probability) == pytest.approx(value, rel=0.001)


def test_two_values_have_a_spread_and_one_has_none() -> None:
    assert robust_spread([3.0]) == 0.0
    assert robust_spread([1.0, 3.0]) > 0.5
