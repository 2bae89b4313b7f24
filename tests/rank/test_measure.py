"""Timing and proving a collective in one process that is a group of one; the patterns of many ranks by arithmetic."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from hypothesis import given, settings
from hypothesis import strategies as st
from torch._C._distributed_c10d import FileStore

from preflight.model.collective import Collective
from preflight.model.run_spec import Measure
from preflight.rank.measure import (
    Ranks,
    _expected,
    _pattern,
    allocate,
    caller,
    count_wrong,
    measure_collective,
    prove_first,
)

CPU = torch.device("cpu")
ALONE = Ranks(0, 1, CPU)
GROUPED = [Collective.ALL_REDUCE, Collective.ALL_GATHER, Collective.REDUCE_SCATTER, Collective.BROADCAST]
WORLDS = st.integers(2, 6)


@pytest.fixture(scope="module", autouse=True)
def _group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    path: Path = tmp_path_factory.mktemp("store") / "file"
    store = FileStore(str(path), 1)
    dist.init_process_group("gloo", store=store, rank=0, world_size=1, timeout=timedelta(seconds=10))
    yield
    dist.destroy_process_group()


def mine(what: str, number: int) -> int:
    return number


@pytest.mark.parametrize("collective", [*GROUPED, Collective.ALL_TO_ALL])
@pytest.mark.parametrize("nominal_bytes", [1, 8, 4096])
def test_every_collective_is_timed_and_verified(collective: Collective, nominal_bytes: int) -> None:
    measure = Measure(collective, nominal_bytes, budget_s=0.001, min_repetitions=3, max_repetitions=5)
    size_bytes, samples = measure_collective(measure, ALONE, mine)
    assert size_bytes == max(4, nominal_bytes)
    assert samples.wrong_elements == 0
    assert 3 <= len(samples.call_us) == len(samples.gap_us) == len(samples.barrier_us) <= 5
    assert min(samples.call_us) > 0
    assert min(samples.gap_us) >= 0


def test_all_ranks_repeat_as_often_as_rank_0_decided() -> None:
    measure = Measure(Collective.ALL_REDUCE, 8, budget_s=10, min_repetitions=3, max_repetitions=50)
    assert len(measure_collective(measure, ALONE, lambda what, number: 4)[1].call_us) == 4


def test_the_first_collective_proves_its_sum() -> None:
    assert prove_first(ALONE) == 0
    assert prove_first(Ranks(0, 2, CPU)) == 1  # a sum of one rank is wrong for two


@pytest.mark.parametrize("collective", [*GROUPED, Collective.ALL_TO_ALL])
@pytest.mark.parametrize("place", [0, 100, -1])
def test_one_flipped_element_is_counted_as_one(collective: Collective, place: int) -> None:
    buffers = allocate(collective, 1024, ALONE)
    call = caller(collective, buffers, ALONE)

    def flipping() -> None:
        call()
        buffers.receive.view(torch.int32)[place] ^= 1

    assert count_wrong(collective, buffers, ALONE, call) == 0
    assert count_wrong(collective, buffers, ALONE, flipping) == 1


@pytest.mark.parametrize("collective", GROUPED)
def test_a_collective_that_does_nothing_is_wrong_nearly_everywhere(collective: Collective) -> None:
    ranks = Ranks(1, 2, CPU)
    buffers = allocate(collective, 4096, ranks)
    assert count_wrong(collective, buffers, ranks, lambda: None) == buffers.receive.numel()


def test_values_that_are_no_numbers_are_wrong() -> None:
    buffers = allocate(Collective.ALL_REDUCE, 64, ALONE)
    assert count_wrong(Collective.ALL_REDUCE, buffers, ALONE, lambda: buffers.receive.fill_(float("nan"))) == 16


@given(st.integers(0, 1023), st.integers(0, 1023))
def test_the_patterns_of_two_ranks_differ_in_every_element(one: int, other: int) -> None:
    if one != other:
        assert not (_pattern(one, 9000, CPU) == _pattern(other, 9000, CPU)).any()


@given(st.integers(0, 1023))
def test_neighbouring_elements_of_a_pattern_differ_and_are_small_whole_numbers(rank: int) -> None:
    pattern = _pattern(rank, 9000, CPU)
    assert (pattern[1:] != pattern[:-1]).all()
    assert pattern.min() >= 0
    assert pattern.max() < 2**14


def test_the_sum_over_1024_ranks_is_exact_in_float32() -> None:
    whole, rounded = torch.zeros(512, dtype=torch.int64), torch.zeros(512, dtype=torch.float32)
    for rank in range(1024):
        pattern = _pattern(rank, 512, CPU)
        whole += pattern.to(torch.int64)
        rounded += pattern
    assert whole.max() < 2**24
    assert torch.equal(rounded.to(torch.int64), whole)


@settings(max_examples=25)
@given(WORLDS, st.integers(1, 300))
def test_what_each_rank_expects_is_what_the_collective_means(world_size: int, nominal_bytes: int) -> None:
    """Do each collective by hand on all ranks' patterns and compare with what every rank expects."""
    for collective in Collective:
        everyone = [Ranks(rank, world_size, CPU) for rank in range(world_size)]
        buffers = [allocate(collective, nominal_bytes, ranks) for ranks in everyone]
        sent = [_pattern(r, buffers[r].send.numel(), CPU) for r in range(world_size)]
        total, parts = sum(sent[1:], sent[0]), [each.chunk(world_size) for each in sent]
        for rank, ranks in enumerate(everyone):
            match collective:
                case Collective.ALL_REDUCE:
                    by_hand = total
                case Collective.BROADCAST:
                    by_hand = sent[0]
                case Collective.ALL_GATHER:
                    by_hand = torch.cat(sent)
                case Collective.REDUCE_SCATTER:
                    by_hand = total.chunk(world_size)[rank]
                case Collective.ALL_TO_ALL:
                    by_hand = torch.cat([parts[other][rank] for other in range(world_size)])
            assert torch.equal(_expected(collective, buffers[rank], ranks), by_hand)
