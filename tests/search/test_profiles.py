"""What a profile measures and how long its stages may take."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preflight.model.collective import Collective
from preflight.model.profile import GIB, MIB, Profile
from preflight.search.profiles import (
    BUFFERS_PER_SIZE,
    measures,
    sizes,
    sizes_without_room,
    stage_limits,
    trial_measures,
)

PLENTY = 1 << 50


def test_quick_measures_latency_a_small_and_a_ddp_bucket_and_on_gpus_a_gibibyte() -> None:
    assert sizes(Profile.QUICK, True, PLENTY) == (8, MIB, 32 * MIB, GIB)
    assert sizes(Profile.QUICK, False, PLENTY) == (8, MIB)


def test_standard_goes_by_a_factor_of_four_up_to_the_largest() -> None:
    on_cpu = sizes(Profile.STANDARD, False, PLENTY)
    assert on_cpu[:4] == (8, 32, 128, 512)
    assert on_cpu[-1] == 16 * MIB
    assert sizes(Profile.STANDARD, True, PLENTY)[-1] == 4 * GIB


@given(st.sampled_from(Profile), st.booleans(), st.integers(0, 1 << 45))
def test_sizes_ascend_and_fit_into_the_free_memory(profile: Profile, on_gpu: bool, free_bytes: int) -> None:
    chosen = sizes(profile, on_gpu, free_bytes)
    assert list(chosen) == sorted(set(chosen))
    assert chosen[0] == 8
    assert chosen == (8,) or chosen[-1] * BUFFERS_PER_SIZE <= free_bytes


@given(st.sampled_from(Profile), st.booleans(), st.integers(0, 1 << 40), st.integers(0, 1 << 40))
def test_more_memory_never_takes_a_size_away(profile: Profile, on_gpu: bool, one: int, other: int) -> None:
    less, more = sorted((one, other))
    assert set(sizes(profile, on_gpu, less)) <= set(sizes(profile, on_gpu, more))


@given(st.sampled_from(Profile), st.booleans(), st.integers(0, 1 << 40))
def test_a_size_is_tried_or_left_out_for_want_of_memory(profile: Profile, on_gpu: bool, free_bytes: int) -> None:
    tried, left_out = sizes(profile, on_gpu, free_bytes), sizes_without_room(profile, on_gpu, free_bytes)
    assert tried + left_out == sizes(profile, on_gpu, 1 << 50)


def test_of_sizes_that_all_lack_memory_all_are_left_out() -> None:
    asked = (MIB, 1024 * MIB)
    assert sizes(Profile.QUICK, True, 64, asked) == (8,)
    assert sizes_without_room(Profile.QUICK, True, 64, asked) == asked


def test_every_size_is_measured_with_both_collectives() -> None:
    planned = measures(Profile.QUICK.effort.timing, (8, MIB))
    assert [(each.nominal_bytes, each.collective) for each in planned] == [
        (size, collective) for size in (8, MIB) for collective in (Collective.ALL_REDUCE, Collective.ALL_GATHER)
    ]
    assert all(each.min_repetitions <= each.max_repetitions for each in planned)


def test_nccl_has_the_time_to_raise_its_own_error_before_it_is_killed() -> None:
    limits = stage_limits("nccl", None)
    assert limits.init_s > 60
    assert stage_limits("nccl", None, nodes=2).first_s > 60


def test_on_one_node_a_hang_in_the_first_collective_leaves_quick_time_for_the_cure() -> None:
    limits = stage_limits("nccl", None)
    assert limits.first_s <= 30 and limits.init_s > 45  # a healthy start of NCCL takes that long on large nodes


def test_gloo_has_no_retries_to_wait_for() -> None:
    assert stage_limits("gloo", None).init_s == 10


@pytest.mark.parametrize("backend", ["nccl", "gloo", "simnccl"])
def test_an_override_holds_for_every_stage_and_is_never_stretched(backend: str) -> None:
    limits = stage_limits(backend, 2.5)
    assert {limits.start_s, limits.init_s, limits.first_s, limits.timed_s} == {2.5}
    assert not limits.stretches


def test_a_size_unit_is_binary() -> None:
    assert (1024, MIB, GIB) == (2**10, 2**20, 2**30)


def test_more_ranks_than_cpus_have_so_many_times_the_time() -> None:
    alone, crowded = stage_limits("gloo", None), stage_limits("gloo", None, ranks_per_cpu=48.0)
    for name in ("start_s", "init_s", "first_s", "timed_s"):
        assert getattr(crowded, name) == 48 * getattr(alone, name)
    assert stage_limits("gloo", None, ranks_per_cpu=0.1) == alone
    assert stage_limits("gloo", 2.5, ranks_per_cpu=48.0).first_s == 2.5


def test_a_trial_of_standard_verifies_enough_timed_calls_to_find_what_is_wrong_in_one_of_twenty() -> None:
    for on_gpu in (False, True):
        for free_bytes in (0, MIB, 16 * GIB):
            planned = trial_measures(Profile.STANDARD, sizes(Profile.STANDARD, on_gpu, free_bytes))
            verified = sum(each.verified_calls for each in planned)
            assert 0.95**verified <= 0.01
            assert all(each.verified_calls <= each.min_repetitions <= each.max_repetitions for each in planned)
