"""The figures that choose who is compared; the rule that decides is in tests/check/recommend/test_compare.py."""

from __future__ import annotations

from dataclasses import replace
from math import exp, log

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preflight.model.collective import Collective
from preflight.model.run_spec import DuelTurn, Measure
from preflight.model.trial import AS_IS, DEFAULT, Outcome
from preflight.search.settings.duel import decision_results, decision_sizes, is_sound, point_gains, screening_gains
from tests.node_facts import MIB, result, trial

BOTH = (Collective.ALL_REDUCE, Collective.ALL_GATHER)
DECISIONS = tuple(Measure(each, MIB, 0.1, 5, 20) for each in BOTH)


def turn(pair: int, turn_: int, default_us: float, candidate_us: float) -> DuelTurn:
    return DuelTurn(pair, turn_, Collective.ALL_REDUCE, MIB, default_us, candidate_us, True)


def test_the_turns_of_a_pair_are_averaged_so_that_drift_cancels() -> None:
    gains = point_gains([turn(0, 0, 1000, 500), turn(0, 1, 1000, 2000), turn(1, 0, 1000, 500)])
    assert gains[0][Collective.ALL_REDUCE, MIB] == pytest.approx(0)
    assert gains[1][Collective.ALL_REDUCE, MIB] == pytest.approx(log(2))


@given(st.floats(1, 1e6), st.floats(1, 1e6))
def test_swapping_the_sides_swaps_the_sign(ours_us: float, theirs_us: float) -> None:
    there, back = (point_gains([turn(0, 0, *pair)])[0] for pair in ((ours_us, theirs_us), (theirs_us, ours_us)))
    assert list(there.values()) == pytest.approx([-each for each in back.values()])


@given(st.floats(0.1, 10))
def test_a_candidate_that_takes_a_share_of_the_time_gains_its_inverse(factor: float) -> None:
    fast = trial("fast", results=tuple(result(each, MIB, (1000 * factor,) * 2) for each in BOTH))
    assert exp(screening_gains(DECISIONS, [trial(), fast])["fast"]) == pytest.approx(1 / factor)


def test_totals_rounded_to_whole_elements_per_rank_are_still_the_size_that_was_planned() -> None:
    rounded = trial("c", results=tuple(result(each, MIB - 8, (500, 500)) for each in BOTH))
    assert screening_gains(DECISIONS, [trial(), rounded])["c"] == pytest.approx(log(2))


def test_only_sound_candidates_that_are_neither_default_nor_inherited_are_screened() -> None:
    wrong = replace(trial("wrong"), results=tuple(replace(each, verified=False) for each in trial().results))
    trials = [trial(), trial(AS_IS), wrong, trial("hung", Outcome.HANG), trial("empty", results=()), trial("ok")]
    assert list(screening_gains(DECISIONS, trials)) == ["ok"]
    assert screening_gains(DECISIONS, [trial(DEFAULT, Outcome.HANG), trial("ok")]) == {}
    assert screening_gains(DECISIONS, [trial("ok")]) == {}
    assert not is_sound(wrong)


def test_a_trial_that_lacks_a_decision_point_is_not_screened() -> None:
    half = trial("half", results=(result(Collective.ALL_REDUCE, MIB),))
    assert screening_gains(DECISIONS, [trial(), half]) == {}


@given(st.sets(st.integers(1, 1 << 36), max_size=12), st.booleans())
def test_decision_sizes_are_at_most_two_of_those_measured_and_the_largest_is_among_them(
    sizes: set[int], cpu_path: bool
) -> None:
    chosen = decision_sizes(tuple(sizes), cpu_path)
    assert set(chosen) <= sizes
    assert len(chosen) <= 2
    assert not sizes or max(sizes) in chosen


def test_the_results_that_decide_are_both_collectives_at_the_decision_sizes() -> None:
    results = [result(each, size) for each in reversed(BOTH) for size in (8, MIB, 4 * MIB, 16 * MIB)]
    decided = decision_results(results, cpu_path=True)
    assert [(each.collective, each.size_bytes) for each in decided] == [
        (each, size) for each in BOTH for size in (4 * MIB, 16 * MIB)
    ]
