from __future__ import annotations

import dataclasses
import random
from typing import Any

import pytest

from preflight.errors import MalformedInput
from preflight.model.collective import Collective
from preflight.model.run_spec import RankSamples
from preflight.model.samples import aggregate, pack_samples, unpack_samples
from preflight.trial.rank.packed_aggregate import MOST_SHOWN, aggregate_many


def packed_ranks(repetitions: int, ranks: int = 300) -> list[dict[str, Any]]:
    chance = random.Random(repetitions)

    def times() -> tuple[float, ...]:
        return tuple(chance.lognormvariate(5, 1) for _ in range(repetitions))

    return [pack_samples(RankSamples(rank, times(), times(), times(), rank % 100 == 7)) for rank in range(ranks)]


@pytest.mark.parametrize("repetitions", [1, 2, 3, 8, 9])
def test_tensors_give_what_plain_python_gives(repetitions: int) -> None:
    packed = packed_ranks(repetitions)[::-1]
    plain = aggregate(Collective.ALL_GATHER, 1 << 20, [unpack_samples(each) for each in packed], 0.5)
    many = aggregate_many(Collective.ALL_GATHER, 1 << 20, packed, 0.5)
    assert dataclasses.replace(many, ranks=()) == dataclasses.replace(plain, ranks=())
    in_order = sorted(plain.ranks, key=lambda each: each.own_us)
    shown = sorted([in_order[0], *in_order[1 - MOST_SHOWN :]], key=lambda each: each.rank)
    assert [each.rank for each in many.ranks] == [each.rank for each in shown]
    assert [each.own_us for each in many.ranks] == pytest.approx([each.own_us for each in shown])
    assert [each.slowdown for each in many.ranks] == pytest.approx([each.slowdown for each in shown])


def test_all_of_few_ranks_are_shown() -> None:
    assert len(aggregate_many(Collective.ALL_REDUCE, 8, packed_ranks(3, MOST_SHOWN), 0.5).ranks) == MOST_SHOWN


@pytest.mark.parametrize("bad", [pack_samples(RankSamples(0, (1.0,), (1.0,), (1.0,), 0)),
                                 pack_samples(RankSamples(0, (1.0,) * 3, (float("nan"),) * 3, (1.0,) * 3, 0)),
                                 {"rank": 0, "wrong_elements": 0}, 7])  # fmt: skip
def test_timings_that_do_not_fit_are_refused(bad: Any) -> None:
    with pytest.raises(MalformedInput):
        aggregate_many(Collective.ALL_REDUCE, 8, [*packed_ranks(3), bad], 0.5)
