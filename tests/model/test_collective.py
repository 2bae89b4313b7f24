"""The arithmetic of nccl-tests' doc/PERFORMANCE.md."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preflight.model.collective import Collective, algbw_gb_s, bus_factor, busbw_gb_s, element_count

TOTALS = (Collective.ALL_GATHER, Collective.REDUCE_SCATTER, Collective.ALL_TO_ALL)
COLLECTIVES = st.sampled_from(Collective)
WORLDS = st.integers(1, 1024)
SIZES = st.integers(0, 1 << 36)


@pytest.mark.parametrize(
    ("collective", "world_size", "factor"),
    [
        (Collective.ALL_REDUCE, 2, 1.0),
        (Collective.ALL_REDUCE, 8, 1.75),
        (Collective.ALL_GATHER, 8, 0.875),
        (Collective.REDUCE_SCATTER, 8, 0.875),
        (Collective.ALL_TO_ALL, 8, 0.875),
        (Collective.BROADCAST, 8, 1.0),
        (Collective.ALL_GATHER, 2, 0.5),
    ],
)
def test_the_factors_are_those_of_nccl_tests(collective: Collective, world_size: int, factor: float) -> None:
    assert bus_factor(collective, world_size) == factor


def test_a_line_of_nccl_tests_comes_out_as_it_printed_it() -> None:
    # all_reduce_perf on 8 GPUs: 8589934592 B in 31252.4 us prints algbw 274.86 and busbw 481.00.
    assert algbw_gb_s(8589934592, 31252.4e-6) == pytest.approx(274.86, abs=0.01)
    assert busbw_gb_s(Collective.ALL_REDUCE, 8589934592, 31252.4e-6, 8) == pytest.approx(481.00, abs=0.01)


@pytest.mark.parametrize("collective", [c for c in Collective if c is not Collective.BROADCAST])
def test_one_rank_alone_moves_nothing_over_the_bus(collective: Collective) -> None:
    assert busbw_gb_s(collective, 1 << 20, 1e-3, 1) == 0.0


@given(COLLECTIVES, st.integers(1, 1 << 40), st.floats(1e-6, 1e3), WORLDS)
def test_twice_the_time_is_half_the_bandwidth(
    collective: Collective, size_bytes: int, time_s: float, world_size: int
) -> None:
    once = busbw_gb_s(collective, size_bytes, time_s, world_size)
    assert busbw_gb_s(collective, size_bytes, 2 * time_s, world_size) == pytest.approx(once / 2)


@given(st.integers(2, 4096))
def test_an_all_reduce_moves_what_a_reduce_scatter_and_an_all_gather_move(world_size: int) -> None:
    parts = bus_factor(Collective.REDUCE_SCATTER, world_size) + bus_factor(Collective.ALL_GATHER, world_size)
    assert bus_factor(Collective.ALL_REDUCE, world_size) == pytest.approx(parts)


@given(COLLECTIVES, WORLDS)
def test_a_bus_factor_lies_between_zero_and_two(collective: Collective, world_size: int) -> None:
    assert 0 <= bus_factor(collective, world_size) < 2


def test_the_size_of_an_all_gather_is_the_total_over_the_ranks() -> None:
    assert element_count(Collective.ALL_GATHER, 32 << 20, 8, 4) == (32 << 20) // 4
    assert element_count(Collective.ALL_REDUCE, 32 << 20, 8, 4) == (32 << 20) // 4


@given(COLLECTIVES, SIZES, WORLDS, st.sampled_from([1, 2, 4, 8]))
def test_a_count_is_a_whole_number_per_rank_and_never_more_than_asked_for_unless_at_least_one_must_be(
    collective: Collective, nominal_bytes: int, world_size: int, element_bytes: int
) -> None:
    count = element_count(collective, nominal_bytes, world_size, element_bytes)
    step = world_size if collective in TOTALS else 1
    assert count >= 1
    assert count % step == 0
    assert count == step or count * element_bytes <= nominal_bytes
    assert count * element_bytes + step * element_bytes > nominal_bytes


@given(COLLECTIVES, SIZES, SIZES, WORLDS)
def test_a_larger_size_never_has_fewer_elements(collective: Collective, one: int, other: int, world_size: int) -> None:
    small, large = sorted((one, other))
    assert element_count(collective, small, world_size, 4) <= element_count(collective, large, world_size, 4)
