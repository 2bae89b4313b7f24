from __future__ import annotations

import random

import pytest

from preflight.model.run import RankSamples
from preflight.model.samples import rank_times
from preflight.rank.many_ranks import rank_times_of_many


@pytest.mark.parametrize("repetitions", [1, 2, 3, 8, 9])
def test_tensors_give_what_plain_python_gives(repetitions: int) -> None:
    chance = random.Random(repetitions)

    def times() -> tuple[float, ...]:
        return tuple(chance.lognormvariate(5, 1) for _ in range(repetitions))

    ranks = [RankSamples(rank, times(), times(), times(), 0) for rank in reversed(range(300))]
    plain, many = rank_times(ranks), rank_times_of_many(ranks)
    assert [each.rank for each in many] == [each.rank for each in plain]
    assert [each.own_us for each in many] == pytest.approx([each.own_us for each in plain])
    assert [each.slowdown for each in many] == pytest.approx([each.slowdown for each in plain])
