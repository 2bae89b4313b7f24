"""From raw timings to results, on synthetic ranks whose truth is known."""

from __future__ import annotations

import random
import statistics
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preflight.model.collective import Collective
from preflight.model.facts import known
from preflight.model.run_spec import RankSamples
from preflight.model.samples import aggregate, percentile, rank_times, slowdowns, slowest_rank_us
from preflight.model.trial import RankTime

REPETITIONS = 9
WORK_US = 1000.0
TIMES = st.lists(st.floats(1, 1e6), min_size=1, max_size=40)


def samples(rank: int, call_us: Sequence[float], **overrides: object) -> RankSamples:
    made = RankSamples(rank, (10.0,) * len(call_us), tuple(call_us), (1.0,) * len(call_us), 0)
    return replace(made, **overrides)  # type: ignore[arg-type]


def played(
    enters_late_us: Sequence[float], leaves_late_us: Sequence[float], noise_us: float = 0.0
) -> list[RankSamples]:
    """Return what ranks with these delays would measure: all enter, the last one starts the work, some leave late."""
    rng = random.Random(1)
    ranks = range(len(enters_late_us))
    barrier: list[list[float]] = [[] for _ in ranks]
    call: list[list[float]] = [[] for _ in ranks]
    gap: list[list[float]] = [[] for _ in ranks]
    at_barrier = [0.0 for _ in ranks]
    for _ in range(REPETITIONS):
        released = max(at_barrier) + 5
        entered = [released + 0.5 + late + rng.uniform(0, noise_us) for late in enters_late_us]
        done = [max(entered) + WORK_US + late + rng.uniform(0, noise_us) for late in leaves_late_us]
        for rank in ranks:
            barrier[rank].append(released - at_barrier[rank])
            gap[rank].append(entered[rank] - released)
            call[rank].append(done[rank] - entered[rank])
        at_barrier = done
    return [RankSamples(r, tuple(barrier[r]), tuple(call[r]), tuple(gap[r]), 0) for r in ranks]


def slowest(times: Sequence[RankTime]) -> int:
    return max(times, key=lambda each: each.slowdown).rank


def test_a_repetition_takes_as_long_as_its_slowest_rank() -> None:
    ranks = [samples(0, (1, 9, 3)), samples(1, (4, 2, 5))]
    assert slowest_rank_us(ranks) == (4, 9, 5)
    result = aggregate(Collective.ALL_REDUCE, 8, ranks)
    assert (result.repetitions, result.min_us, result.median_us, result.p95_us, result.p99_us) == (3, 4, 5, 9, 9)
    assert result.spread == (9 - 4) / 5


def test_the_bandwidths_come_from_the_median_and_the_number_of_ranks() -> None:
    result = aggregate(Collective.ALL_REDUCE, 4_000_000, [samples(rank, (1000, 1000, 9999)) for rank in range(4)])
    assert (result.algbw_gb_s, result.busbw_gb_s) == (4.0, 6.0)


def test_one_wrong_element_on_one_rank_leaves_a_result_unverified() -> None:
    ranks = [samples(0, (1,)), samples(1, (1,), wrong_elements=1), samples(2, (1,), wrong_elements=2)]
    result = aggregate(Collective.ALL_GATHER, 8, ranks)
    assert (result.verified, result.wrong_elements) == (False, 3)


def test_ranks_that_measured_different_numbers_of_repetitions_are_never_mixed() -> None:
    with pytest.raises(ValueError, match="zip"):
        slowest_rank_us([samples(0, (1, 2)), samples(1, (1,))])


@given(TIMES, st.floats(0, 1))
def test_a_percentile_is_a_value_that_was_measured(values: list[float], fraction: float) -> None:
    found = percentile(values, fraction)
    assert found in values
    assert sum(value <= found for value in values) >= fraction * len(values) - 1e-9
    assert min(values) <= found <= max(values)


@given(TIMES)
def test_the_ends_of_the_percentiles_are_the_least_and_the_largest(values: list[float]) -> None:
    assert (percentile(values, 0), percentile(values, 1)) == (min(values), max(values))


@pytest.mark.parametrize("late", range(4))
def test_a_rank_that_leaves_late_is_told_from_those_that_wait_for_it(late: int) -> None:
    delays = [4 * WORK_US if rank == late else 0.0 for rank in range(4)]
    times = rank_times(played([0.0] * 4, delays, noise_us=20))
    assert slowest(times) == late
    assert times[late].slowdown == pytest.approx(5, rel=0.1)
    assert all(each.slowdown < 1.1 for each in times if each.rank != late)


@pytest.mark.parametrize("late", range(4))
def test_a_rank_that_enters_late_is_told_from_those_that_wait_inside_the_call(late: int) -> None:
    delays = [4 * WORK_US if rank == late else 0.0 for rank in range(4)]
    ranks = played(delays, [0.0] * 4, noise_us=20)
    assert min(ranks, key=lambda each: each.call_us[0]).rank == late  # its own call is the shortest
    times = rank_times(ranks)
    assert slowest(times) == late
    assert times[late].slowdown == pytest.approx(5, rel=0.1)


@given(st.integers(2, 8), st.integers(1, 3))
def test_ranks_that_are_alike_have_no_straggler(world_size: int, seed: int) -> None:
    times = rank_times(played([float(seed)] * world_size, [0.0] * world_size, noise_us=50))
    assert all(0.8 < each.slowdown < 1.2 for each in times)


def test_a_single_rank_is_no_slower_than_itself() -> None:
    assert rank_times([samples(0, (5, 5, 5))])[0].slowdown == 1.0


def test_a_single_repetition_is_enough_for_a_figure() -> None:
    assert [each.own_us for each in rank_times([samples(0, (5,)), samples(1, (7,))])] == [6.0, 6.0]


DELAYS = st.lists(st.tuples(st.floats(0, 1e4), st.floats(0, 1e4)), min_size=2, max_size=6)


@given(DELAYS, st.floats(0.01, 100))
def test_times_scaled_by_a_factor_give_results_scaled_by_it(delays: list[tuple[float, float]], factor: float) -> None:
    ranks = played([a for a, _ in delays], [b for _, b in delays])
    scaled = [
        RankSamples(
            each.rank,
            tuple(us * factor for us in each.barrier_us),
            tuple(us * factor for us in each.call_us),
            tuple(us * factor for us in each.gap_us),
            0,
        )
        for each in ranks
    ]
    one, other = (aggregate(Collective.ALL_REDUCE, 1 << 20, each) for each in (ranks, scaled))
    assert other.median_us == pytest.approx(factor * known(one.median_us))
    assert other.busbw_gb_s == pytest.approx(known(one.busbw_gb_s) / factor)
    assert other.spread == pytest.approx(one.spread)
    assert [each.slowdown for each in other.ranks] == pytest.approx([each.slowdown for each in one.ranks])


@given(DELAYS, st.randoms(use_true_random=False))
def test_other_numbers_for_the_ranks_only_renumber_the_result(
    delays: list[tuple[float, float]], rng: random.Random
) -> None:
    ranks = played([a for a, _ in delays], [b for _, b in delays])
    order = list(range(len(ranks)))
    rng.shuffle(order)
    renumbered = [replace(ranks[old], rank=new) for new, old in enumerate(order)]
    one, other = (aggregate(Collective.ALL_GATHER, 1 << 20, each) for each in (ranks, renumbered))
    assert replace(one, ranks=()) == replace(other, ranks=())
    assert [each.own_us for each in other.ranks] == pytest.approx([one.ranks[old].own_us for old in order])


@given(DELAYS, st.randoms(use_true_random=False))
def test_the_order_in_which_ranks_are_collected_does_not_matter(
    delays: list[tuple[float, float]], rng: random.Random
) -> None:
    ranks = played([a for a, _ in delays], [b for _, b in delays])
    shuffled = list(ranks)
    rng.shuffle(shuffled)
    assert rank_times(shuffled) == rank_times(ranks)


@given(st.lists(st.floats(1, 1e6), min_size=2, max_size=12))
def test_a_slowdown_is_the_own_time_over_the_median_of_the_others(values: list[float]) -> None:
    others = [values[:i] + values[i + 1 :] for i in range(len(values))]
    expected = [value / statistics.median(rest) for value, rest in zip(values, others, strict=True)]
    assert slowdowns(values) == pytest.approx(expected)
