"""What every rank expects of a collective, by arithmetic; and what counts as wrong data."""

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
from preflight.trial.rank.buffers import Ranks, allocate, caller
from preflight.trial.rank.verify import (
    PERIOD,
    TimedVerification,
    _expected,
    _fill,
    _sum,
    _summands,
    _words,
    _wrong,
    count_wrong,
    sent_by,
)

torch.set_num_threads(1)  # the threads of two tests at once wait for each other, at full load
CPU = torch.device("cpu")
ALONE = Ranks(0, 1, CPU)
GROUPED = [Collective.ALL_REDUCE, Collective.ALL_GATHER, Collective.REDUCE_SCATTER, Collective.BROADCAST]


def words(rank: int, salt: int) -> torch.Tensor:
    """Return one period of what is only moved from a rank."""
    return _words(range(rank, rank + 1), CPU, salt)[0]


RANKS, SALTS = st.integers(0, 1023), st.integers(0, PERIOD - 1)


@pytest.fixture(scope="module", autouse=True)
def _group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    path: Path = tmp_path_factory.mktemp("store") / "file"
    store = FileStore(str(path), 1)
    dist.init_process_group("gloo", store=store, rank=0, world_size=1, timeout=timedelta(seconds=10))
    yield
    dist.destroy_process_group()


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


@pytest.mark.parametrize("collective", GROUPED)
def test_what_an_earlier_verified_call_left_behind_is_wrong_everywhere(collective: Collective) -> None:
    everyone = [Ranks(rank, 2, CPU) for rank in range(2)]
    buffers = [allocate(collective, 4096, ranks) for ranks in everyone]
    verifications = [
        TimedVerification(collective, each, ranks, frozenset((0, 1)), seed=7)
        for each, ranks in zip(buffers, everyone, strict=True)
    ]
    right: list[torch.Tensor] = []
    for place in (0, 1):
        for verification in verifications:
            work = verification.work_before(place)
            assert work is not None
            work()
        if place == 0:
            right = _by_hand(collective, [each.send.clone() for each in buffers])
        for each, received in zip(buffers, right, strict=True):
            each.receive.copy_(received)  # the second time this is stale
        assert [each.wrong_elements for each in verifications] == [0, 0]
    for verification in verifications:
        verification.finish()
    assert [each.verified_calls for each in verifications] == [2, 2]
    assert [each.wrong_elements for each in verifications] == [each.receive.numel() for each in buffers]


@settings(max_examples=25, deadline=None)
@given(st.lists(st.booleans(), min_size=1, max_size=12), st.integers(0, 2**31 - 1))
def test_right_data_are_right_in_whatever_order_calls_are_verified(verified: list[bool], seed: int) -> None:
    ranks = Ranks(1, 3, CPU)
    buffers = allocate(Collective.BROADCAST, 64, ranks)
    places = frozenset(place for place, is_verified in enumerate(verified) if is_verified)
    verification = TimedVerification(Collective.BROADCAST, buffers, ranks, places, seed)
    for place in range(len(verified)):
        work = verification.work_before(place)
        if work is not None:
            work()
        sent = sent_by(0, Collective.BROADCAST, ranks, verification._salt)[: buffers.receive.numel()]
        buffers.receive.view(torch.int32).copy_(sent if place in places else torch.zeros_like(sent))
    verification.finish()
    assert (verification.wrong_elements, verification.verified_calls) == (0, len(places))


def test_a_call_that_is_not_verified_and_leaves_something_is_noticed_at_the_next_one_that_is() -> None:
    buffers = allocate(Collective.ALL_REDUCE, 64, ALONE)
    verification = TimedVerification(Collective.ALL_REDUCE, buffers, ALONE, frozenset((1,)), seed=1)
    for place in (0, 1):
        work = verification.work_before(place)
        assert work is not None
        work()
        if place == 0:
            buffers.receive[5] = 1.0
    assert (verification.wrong_elements, verification.spread_elements) == (0, 1)  # in place: whose it is isn't known


@settings(max_examples=25, deadline=None)
@given(RANKS, RANKS, SALTS)
def test_the_patterns_of_two_ranks_differ_in_every_element(one: int, other: int, salt: int) -> None:
    if one != other:
        assert not (words(one, salt) == words(other, salt)).any()


@settings(max_examples=25, deadline=None)
@given(RANKS, SALTS, SALTS)
def test_the_patterns_of_two_calls_differ_in_every_element(rank: int, one: int, other: int) -> None:
    if one != other:
        assert not (words(rank, one) == words(rank, other)).any()


@settings(max_examples=25, deadline=None)
@given(RANKS, SALTS)
def test_no_two_elements_of_a_pattern_are_equal(rank: int, salt: int) -> None:
    assert len(set(words(rank, salt).tolist())) == PERIOD


@pytest.mark.parametrize("count", [1, 2, 8, 1024, pytest.param(16384, marks=pytest.mark.integration)])
def test_the_sizes_of_all_that_is_summed_at_a_place_stay_below_what_float32_holds_exactly(count: int) -> None:
    """So every sum of some of them is exact, in whatever order it is made."""
    ranks, sizes = Ranks(0, count, CPU), torch.zeros(PERIOD, dtype=torch.int64)
    for first in range(0, count, 512):
        sizes += _summands(range(first, min(first + 512, count)), ranks, salt=5).abs().sum(0)
    assert sizes.max() < 2**24
    assert torch.equal(_sum(ranks, 5), _sum(ranks, 5).to(torch.float64).to(torch.float32))


@pytest.mark.parametrize("collective", Collective)
@pytest.mark.parametrize("count", [1, 8, 1024])
def test_every_bit_is_sent_as_0_and_as_1(collective: Collective, count: int) -> None:
    """The lowest bits of what is summed need a place at which this rank sends the large number."""
    bits = torch.arange(32)
    for rank in {0, count - 1}:
        sent = torch.cat(
            [sent_by(rank, collective, Ranks(rank, count, CPU), salt).view(torch.int32) for salt in range(0, 61, 5)]
        )
        ones = (sent.unsqueeze(1) >> bits & 1).sum(0)
        assert ones.min() > 0
        assert ones.max() < sent.numel()


@settings(max_examples=15, deadline=None)
@given(st.integers(2, 6), st.sampled_from([1, 8, 300, 4 * PERIOD, 100_000]), SALTS)
def test_what_each_rank_expects_is_what_the_collective_means(world_size: int, nominal_bytes: int, salt: int) -> None:
    """Do each collective by hand on all ranks' patterns; nothing of that is wrong, and one other element is."""
    for collective in Collective:
        everyone = [Ranks(rank, world_size, CPU) for rank in range(world_size)]
        buffers = [allocate(collective, nominal_bytes, ranks) for ranks in everyone]
        for each, ranks in zip(buffers, everyone, strict=True):
            _fill(each, ranks, salt, collective)
        received = _by_hand(collective, [each.send.clone() for each in buffers])
        for each, ranks, by_hand in zip(buffers, everyone, received, strict=True):
            parts = _expected(collective, ranks, salt, each.receive.numel())
            assert all(part.numel() == PERIOD for part in parts)
            each.receive.copy_(by_hand)
            assert _wrong(collective, each, ranks, salt) == 0
            each.receive.view(torch.int32)[-1] ^= 1
            assert _wrong(collective, each, ranks, salt) == 1


def _by_hand(collective: Collective, sent: list[torch.Tensor]) -> list[torch.Tensor]:
    """Return what each rank receives."""
    ranks = range(len(sent))
    total, parts = sum(sent[1:], sent[0]), [each.chunk(len(sent)) for each in sent]
    match collective:
        case Collective.ALL_REDUCE:
            return [total for _ in ranks]
        case Collective.BROADCAST:
            return [sent[0] for _ in ranks]
        case Collective.ALL_GATHER:
            return [torch.cat(sent) for _ in ranks]
        case Collective.REDUCE_SCATTER:
            return [total.chunk(len(sent))[rank] for rank in ranks]
        case Collective.ALL_TO_ALL:
            return [torch.cat([parts[other][rank] for other in ranks]) for rank in ranks]
