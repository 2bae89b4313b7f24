"""Timing and proving a collective in one process that is a group of one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from itertools import count
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from hypothesis import given, settings
from hypothesis import strategies as st
from torch._C._distributed_c10d import FileStore

from preflight.model.collective import Collective
from preflight.model.run_spec import Measure
from preflight.trial.rank.buffers import Ranks, allocate, caller
from preflight.trial.rank.measure import LEAD_IN, SEEDS, drawn_places, measure_call, measure_collective, prove_first

CPU = torch.device("cpu")
ALONE = Ranks(0, 1, CPU)
GROUPED = [Collective.ALL_REDUCE, Collective.ALL_GATHER, Collective.REDUCE_SCATTER, Collective.BROADCAST]
BEFORE_THE_TIMED = 3 + LEAD_IN  # verified, and twice to see how long it takes


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


def test_as_many_timed_calls_are_verified_as_were_asked_for_if_there_are_so_many() -> None:
    measure = Measure(Collective.ALL_GATHER, 64, budget_s=0.0, min_repetitions=5, max_repetitions=5, verified_calls=3)
    assert measure_collective(measure, ALONE, mine)[1].verified_calls == 3
    assert measure_collective(replace(measure, verified_calls=9), ALONE, mine)[1].verified_calls == 5
    assert measure_collective(replace(measure, verified_calls=0), ALONE, mine)[1].verified_calls == 0


@settings(deadline=None)
@given(st.integers(0, 8), st.integers(1, 60), st.integers(0, 60), st.integers(0, SEEDS - 1))
def test_only_timed_calls_are_drawn(lead_in: int, repetitions: int, verified: int, seed: int) -> None:
    places = drawn_places(lead_in, repetitions, verified, seed)
    assert len(places) == min(repetitions, verified)
    assert places <= set(range(lead_in, lead_in + repetitions))


def test_every_timed_call_is_drawn_by_some_seed_so_that_no_place_is_safe() -> None:
    assert frozenset.union(*(drawn_places(4, 20, 3, seed) for seed in range(500))) == set(range(4, 24))


@pytest.mark.parametrize("collective", GROUPED)
@pytest.mark.parametrize("fault", ["one element", "no number", "nothing moved"])
def test_data_that_are_wrong_in_every_timed_call_only_are_found(collective: Collective, fault: str) -> None:
    measure = Measure(collective, 4096, budget_s=0.0, min_repetitions=9, max_repetitions=9, verified_calls=3)
    buffers = allocate(collective, measure.nominal_bytes, ALONE)
    real, calls = caller(collective, buffers, ALONE), count()

    def call() -> None:
        place = next(calls) - BEFORE_THE_TIMED
        is_timed = 0 <= place < 9
        if not (is_timed and fault == "nothing moved" and buffers.send.data_ptr() != buffers.receive.data_ptr()):
            real()
        if is_timed and fault != "nothing moved":
            buffers.receive[-1] += 1.0 if fault == "one element" else float("nan")

    found = measure_call(measure, buffers, call, ALONE, mine).wrong_elements
    # A group of one has nothing to move where it sends from and receives into the same tensor.
    assert (found > 0) is (fault != "nothing moved" or collective in (Collective.ALL_GATHER, Collective.REDUCE_SCATTER))
