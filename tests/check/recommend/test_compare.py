"""The rule that lets a candidate win, and its laws."""

from __future__ import annotations

import dataclasses

from hypothesis import given
from hypothesis import strategies as st

from preflight.check.recommend.compare import compare, loses
from preflight.model.run_spec import Duel, DuelTurn
from preflight.search.settings.duel import MIN_GAIN, decision_sizes, finalist, heats
from scripts.bench_decisions import simulate_decisions
from tests.reports import MIB, duel_of

GAINS = st.lists(st.floats(min_value=-0.5, max_value=1.0), min_size=1, max_size=40)


def test_a_steady_gain_wins() -> None:
    result = compare(duel_of("c", [0.19, 0.20, 0.21, 0.20, 0.18, 0.22]))
    assert result.wins
    assert result.rounds == 6
    assert abs(result.mean_gain - 0.20) < 0.001
    assert 0.18 < result.lower_bound < 0.20


def test_a_gain_that_noise_explains_does_not_win() -> None:
    assert not compare(duel_of("c", [0.6, -0.2, 0.5, -0.2, 0.4, -0.1])).wins


def test_a_sure_gain_that_is_not_worth_a_setting_does_not_win() -> None:
    assert not compare(duel_of("c", [0.04] * 8)).wins


def test_a_loss_at_one_size_outweighs_gains_elsewhere() -> None:
    duel = duel_of("c", [0.5] * 8)
    turns = tuple(
        dataclasses.replace(turn, candidate_median_us=1600.0 + turn.pair) if i % 2 else turn
        for i, turn in enumerate(duel.turns)
    )
    result = compare(Duel("c", turns, ""))
    assert result.worst_gain < -MIN_GAIN
    assert not result.wins


@given(GAINS)
def test_a_wrong_answer_never_wins_however_fast(gains: list[float]) -> None:
    assert not compare(duel_of("c", [gain + 10 for gain in gains], verified=False)).wins


@given(GAINS)
def test_a_duel_that_was_not_finished_never_wins(gains: list[float]) -> None:
    assert not compare(duel_of("c", [gain + 10 for gain in gains], problem="rank 1 hung")).wins


@given(st.lists(st.floats(min_value=0.5, max_value=9.0), max_size=5))
def test_fewer_rounds_than_six_never_win(gains: list[float]) -> None:
    assert not compare(duel_of("c", gains)).wins


@given(GAINS)
def test_whatever_wins_beats_the_noise(gains: list[float]) -> None:
    result = compare(duel_of("c", gains))
    if result.wins:
        assert result.mean_gain > MIN_GAIN
        assert result.lower_bound > 0
        assert result.worst_gain > -MIN_GAIN


@given(GAINS)
def test_swapping_the_sides_never_gives_both_the_win_and_mirrors_losing(gains: list[float]) -> None:
    duel = duel_of("c", gains)
    there, back = compare(duel), compare(Duel("c", tuple(_swapped(turn) for turn in duel.turns), ""))
    assert not (there.wins and back.wins)
    assert not (there.wins and loses(there))
    if back.wins and abs(back.mean_gain - MIN_GAIN) > 1e-6 and back.lower_bound > 1e-6:
        assert loses(there)


@given(GAINS, st.randoms(use_true_random=False))
def test_the_order_of_turns_does_not_matter(gains: list[float], random: st.DataObject) -> None:
    duel = duel_of("c", gains)
    turns = list(duel.turns)
    random.shuffle(turns)  # type: ignore[attr-defined]
    assert compare(Duel("c", tuple(turns), "")) == compare(duel)


def test_rounds_that_measured_different_things_prove_nothing() -> None:
    duel = duel_of("c", [0.5] * 8)
    assert not compare(Duel("c", duel.turns[:-1], "")).wins


def test_the_decision_sizes_are_32_mib_and_the_largest_and_on_the_cpu_the_two_largest() -> None:
    sizes = [8 * 4**k for k in range(15)]
    assert decision_sizes(sizes, cpu_path=False) == (32 * MIB, sizes[-1])
    assert decision_sizes([8, MIB, 16 * MIB], cpu_path=True) == (MIB, 16 * MIB)
    assert decision_sizes([8, MIB], cpu_path=True) == (MIB,)
    assert decision_sizes([8], cpu_path=True) == (8,)
    assert decision_sizes([8, MIB, 33_554_400, 1 << 30], cpu_path=False) == (33_554_400, 1 << 30)
    assert decision_sizes([], cpu_path=False) == ()


def test_the_three_best_of_the_screening_meet_the_default_and_only_a_worthwhile_one_goes_on() -> None:
    screened = {"a": 0.10, "b": 0.30, "c": 0.01, "d": 0.20}
    assert heats(screened) == ("b", "d", "a")
    assert finalist(screened, [duel_of("b", [0.0]), duel_of("d", [0.3]), duel_of("a", [0.0])]) == "d"
    assert finalist(screened, [duel_of("b", [0.0], problem="rank 0 hung"), duel_of("a", [-0.1])]) == ""
    assert finalist(screened, [duel_of("b", [5.0], verified=False)]) == ""


def test_equal_candidates_are_hardly_ever_recommended_and_a_fast_one_nearly_always() -> None:
    false, _ = simulate_decisions(1, 1.0, 200)
    wrong, found = simulate_decisions(2, 1.2, 200)
    assert (false <= 2, found >= 190, wrong) == (True, True, 0)


def _swapped(turn: DuelTurn) -> DuelTurn:
    return dataclasses.replace(
        turn, default_median_us=turn.candidate_median_us, candidate_median_us=turn.default_median_us
    )
