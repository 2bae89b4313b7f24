"""From the answers of both sides to the turns of a duel."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from preflight.model.codec import encode
from preflight.model.collective import Collective
from preflight.model.run_spec import RankSamples
from preflight.model.samples import pack_samples
from preflight.model.trial import RankEnd
from preflight.trial.rank.outcome import RankAnswer, duel_turns

POINTS = (("all_reduce", 1024), ("all_gather", 1024))


def side(*times_us: float, ranks: int = 2, wrong_rank: int = -1) -> list[RankAnswer]:
    """Return the answers of ranks that went through both points again and again, a step per time given."""
    answers = []
    for rank in range(ranks):
        events = []
        for step, time_us in enumerate(times_us):
            collective, size_bytes = POINTS[step % 2]
            wrong = int(rank == wrong_rank)
            samples = RankSamples(rank, (1.0,) * 3, (time_us - 1, time_us, time_us + 1), (0.1,) * 3, wrong)
            measured = {"turn": step // 2, "collective": collective, "size_bytes": size_bytes, "took_s": 0.5}
            events.append({"measured": measured, "samples": pack_samples(samples)})
        answers.append({"end": encode(RankEnd(rank, "done", "done", "")), "events": events, "started_by": "fork"})
    return answers


def test_each_step_becomes_a_turn_with_the_medians_of_both_sides() -> None:
    turns = duel_turns(3, side(100, 200, 110, 210), side(50, 60, 70, 80))
    assert [(t.pair, t.turn, t.collective, t.default_median_us, t.candidate_median_us) for t in turns] == [
        (3, 0, Collective.ALL_REDUCE, 100, 50),
        (3, 0, Collective.ALL_GATHER, 200, 60),
        (3, 1, Collective.ALL_REDUCE, 110, 70),
        (3, 1, Collective.ALL_GATHER, 210, 80),
    ]
    assert all(turn.verified and turn.size_bytes == 1024 for turn in turns)


def test_a_wrong_element_on_either_side_leaves_the_turn_unverified() -> None:
    assert not duel_turns(0, side(100), side(100, wrong_rank=1))[0].verified
    assert not duel_turns(0, side(100, wrong_rank=0), side(100))[0].verified


def test_a_step_that_one_side_did_not_finish_is_no_turn() -> None:
    assert len(duel_turns(0, side(100, 200, 100), side(100))) == 1
    assert duel_turns(0, side(), side(100)) == ()


TIMES = st.lists(st.floats(2, 1e6), min_size=1, max_size=6)


@given(TIMES, st.floats(2, 1e6))
def test_swapping_the_sides_swaps_the_figures(times_us: list[float], other_us: float) -> None:
    there = duel_turns(0, side(*times_us), side(*[other_us] * len(times_us)))
    back = duel_turns(0, side(*[other_us] * len(times_us)), side(*times_us))
    assert [(t.default_median_us, t.candidate_median_us) for t in there] == [
        (t.candidate_median_us, t.default_median_us) for t in back
    ]
