"""When a rank counts as late: by its share and by its time, at both edges, on GPUs and on CPUs."""

from __future__ import annotations

import pytest

from preflight.model.collective import Collective
from preflight.model.trial import RankTime, TrialResult
from preflight.search.late_rank import late_rank
from tests.node_facts import MIB, result, trial

SIZES = (4 * MIB, 16 * MIB)


def of_two(late_us: float, other_us: float, share: float | None = None) -> TrialResult:
    """Return a trial in which rank 1 takes `late_us` and rank 0 `other_us`; `share` replaces their quotient."""
    both = (Collective.ALL_REDUCE, Collective.ALL_GATHER)
    times = (RankTime(0, other_us, other_us / late_us), RankTime(1, late_us, share or late_us / other_us))
    results = [result(each, size, (other_us, late_us), ranks=times) for each in both for size in SIZES]
    return trial(results=tuple(results))


@pytest.mark.parametrize(("on_gpus", "least_us"), [(True, 20.0), (False, 200.0)])
def test_a_rank_is_late_from_the_least_time_on(on_gpus: bool, least_us: float) -> None:
    assert late_rank(of_two(2 * least_us, least_us), on_gpus), "twice as long, and just enough"
    assert not late_rank(of_two(2 * least_us - 2, least_us - 1), on_gpus), "twice as long, and a microsecond too little"


def test_a_rank_is_late_above_a_fifth() -> None:
    assert not late_rank(of_two(12_000, 10_000, share=1.2), on_gpus=True)
    assert late_rank(of_two(12_010, 10_000, share=1.201), on_gpus=True)


def test_a_late_rank_comes_with_the_time_of_the_others() -> None:
    late = late_rank(of_two(3000, 1000), on_gpus=True)
    assert {each.time.rank for each in late} == {1}
    assert [each.others_us for each in late] == pytest.approx([1000] * len(late))
