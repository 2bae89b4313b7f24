"""The bounds that a baseline draws, against figures from tables and from the formula."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from preflight.model.baseline import (
    FALSE_REJECTIONS,
    PARTS,
    REJECTED_LOSS,
    Reference,
    false_rejections,
    floor_share,
    spread,
    usual_share,
)
from preflight.model.collective import Collective
from preflight.model.gap import Gap
from preflight.model.stats import tolerance_factor

UNKNOWN = Gap("measured once")


def reference(size_bytes: int = 1024, nodes: int = 10, between: float = 0.02, within: float | Gap = 0.01) -> Reference:
    return Reference(Collective.ALL_REDUCE, size_bytes, "small", nodes, 2.0, 10.0, between, within)


def test_the_spread_is_that_of_a_new_nodes_mean_about_the_median() -> None:
    among, within = 0.02**2 * 1.1, 0.01**2 * (1 / 4 + 1 / 20)
    assert spread(reference(), 4) == pytest.approx(math.sqrt(among + within))
    assert spread(reference(within=UNKNOWN), 4) == pytest.approx(math.sqrt(among))


@pytest.mark.parametrize(("count", "factor"), [(10, 1.714), (20, 1.867)])
def test_the_least_tolerance_factor_is_that_of_simulated_samples(count: int, factor: float) -> None:
    """The first decile over 2 million samples of the factor with which 99% of normal values are above the bound."""
    assert tolerance_factor(count - 1, 0.99, 0.1) == pytest.approx(factor, rel=0.03)


@pytest.mark.parametrize(("count", "share", "factor"), [(10, 0.99, 3.981), (20, 0.99, 3.295), (50, 0.999, 3.766)])
def test_the_tolerance_factor_is_that_of_the_table(count: int, share: float, factor: float) -> None:
    """NIST/SEMATECH e-Handbook, 7.2.6.3: one-sided, 95% confidence; the approximation is a little small."""
    assert tolerance_factor(count - 1, share, 0.95) == pytest.approx(factor, rel=0.08)


def test_what_is_usual_is_a_tolerance_bound() -> None:
    share = usual_share(reference(nodes=1000, within=UNKNOWN), 1, 0.01)
    normal = math.exp(-2.326 * spread(reference(nodes=1000, within=UNKNOWN), 1))
    assert share < normal, "beyond the quantile, since the spread itself is not sure"
    assert share == pytest.approx(normal, rel=0.006)


@pytest.mark.parametrize("nodes", [2, 3])
def test_of_few_nodes_the_usual_counts_two_degrees_of_freedom(nodes: int) -> None:
    known = reference(nodes=nodes, within=UNKNOWN)
    quantile = -math.log(usual_share(known, 1, 0.05)) / spread(known, 1)
    assert quantile > 2.920, "t(0.95) of 2 degrees of freedom"


def test_no_loss_below_that_of_good_nodes_rejects_and_of_large_sizes_few_nodes_are_enough() -> None:
    least, wide = 1 - REJECTED_LOSS.value, 0.1
    assert floor_share(reference(between=0.001, within=0.001), 4, 0.01) == least
    assert floor_share(reference(between=wide), 4, 0.01) == usual_share(reference(between=wide), 4, 0.01) < least
    large = replace(reference(0, nodes=5), group="large")
    assert usual_share(large, 4, 0.01) < 0.9 < floor_share(large, 4, 0.01) <= least
    wider = [floor_share(replace(large, between_nodes=wide, nodes=each), 4, 0.01) for each in (5, 10, 20)]
    assert sorted(wider, reverse=True) == wider, "the more nodes, the surer that good nodes differ so much"
    assert wider[0] < 0.9
    assert wider[-1] == pytest.approx(math.exp(-2.326 * wide), rel=0.02)


def test_the_false_rejections_are_shared_out() -> None:
    singles = [reference(1024), reference(2048)]
    group = reference(0)
    assert false_rejections([*singles, group], singles[0]) == pytest.approx(
        FALSE_REJECTIONS.value * PARTS["single"] / 2
    )
    assert false_rejections([*singles, group], group) == pytest.approx(FALSE_REJECTIONS.value * PARTS["small"])
