"""What is tried next: a simulated conductor does whatever the plan says, with outcomes that each test chooses."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preflight.fleet.baseline import learn
from preflight.model.baseline import MOST_REPEATS, NO_BASELINE, Baseline, speeds_of
from preflight.model.collective import Collective
from preflight.model.run_spec import Duel, DuelTurn, Measure
from preflight.model.trial import AGAIN, AS_IS, DEFAULT, Candidate, Outcome, Scope, TrialResult
from preflight.search.settings.duel import DUEL_PAIRS, HEATS, is_sound
from preflight.search.settings.search import next_step
from preflight.search.settings.steps import Again, Compare, Known, Repeat, Stop, Try
from tests.node_facts import MIB, result, trial

DECISIONS = (Measure(Collective.ALL_REDUCE, MIB, 0.1, 5, 20), Measure(Collective.ALL_GATHER, MIB, 0.1, 5, 20))


def candidate(name: str) -> Candidate:
    return Candidate(name, (), "", Scope.ANYWHERE)


def trial_of(name: str, outcome: Outcome = Outcome.OK, time_us: float = 1000.0, verified: bool = True) -> TrialResult:
    """Return a trial whose collectives all took `time_us`."""
    both = (Collective.ALL_REDUCE, Collective.ALL_GATHER)
    results = tuple(result(each, MIB, (time_us, time_us), verified=verified) for each in both)
    return trial(name, outcome, results=results if outcome is Outcome.OK else ())


def duel_of(name: str, pairs: int, gain: float, problem: str = "") -> Duel:
    turns = tuple(
        DuelTurn(pair, 0, each, MIB, 1000.0, 1000.0 / (1 + gain), True)
        for pair in range(0 if problem else pairs)
        for each in (Collective.ALL_REDUCE, Collective.ALL_GATHER)
    )
    return Duel(name, turns, problem)


@dataclass
class Played:
    """What was done, in order."""

    tried: list[str] = field(default_factory=list)
    compared: list[tuple[str, int]] = field(default_factory=list)
    known: Known = field(default_factory=Known)


def play(
    names: list[str],
    screen_all: bool,
    trials: Mapping[str, TrialResult],
    duel: Callable[[str, int], Duel] = lambda name, pairs: duel_of(name, pairs, 0.2),
    baseline: Baseline = NO_BASELINE,
    repeat: Callable[[int], TrialResult] = lambda turn: trial_of(f"{AGAIN}{turn}"),
    left_s: float = math.inf,
) -> Played:
    """Do what the plan says until it stops; on GPUs where the time is limited."""
    played = Played(known=Known(left_s=left_s))
    candidates = [candidate(name) for name in names]
    for _ in range(2 * len(names) + HEATS + 3):
        match next_step(candidates, screen_all, DECISIONS, played.known, baseline=baseline, on_gpus=left_s < math.inf):
            case Try(candidate=Candidate(name=name)):
                assert name not in played.tried, "a candidate is tried once"
                played.tried.append(name)
                played.known = replace(played.known, results=(*played.known.results, trials.get(name, trial_of(name))))
            case Compare(candidate=name, pairs=pairs):
                played.compared.append((name, pairs))
                done = duel(name, pairs)
                if pairs == 1:
                    played.known = replace(played.known, heated=(*played.known.heated, done))
                else:
                    played.known = replace(played.known, compared=(*played.known.compared, done))
            case Again(turn=turn):
                assert turn == len(played.known.repeats) + 1
                played.known = replace(played.known, repeats=(*played.known.repeats, repeat(turn)))
            case Repeat() as step:
                raise AssertionError(f"no control was asked for: {step}")
            case Stop():
                return played
    raise AssertionError(f"the search does not end: {played}")


def test_quick_stops_after_a_default_that_works() -> None:
    assert play([DEFAULT, "a", "b"], False, {}).tried == [DEFAULT]


def test_quick_tries_the_inherited_settings_beside_the_default_and_compares_nothing() -> None:
    played = play([DEFAULT, AS_IS, "a"], False, {})
    assert (played.tried, played.compared) == ([DEFAULT, AS_IS], [])


@pytest.mark.parametrize(
    ("times", "left_s", "compared"),
    [(39.0, 100.0, [(AS_IS, DUEL_PAIRS)]), (39.0, 1.0, []), (1.5, 100.0, [])],
    ids=["far slower", "far slower, and no time is left", "a little slower"],
)
def test_quick_compares_inherited_settings_that_look_far_slower(
    times: float, left_s: float, compared: list[tuple[str, int]]
) -> None:
    slow = trial_of(AS_IS, time_us=times * 1000.0)
    assert play([DEFAULT, AS_IS], False, {AS_IS: slow}, left_s=left_s).compared == compared


def test_where_the_default_fails_every_other_candidate_gets_its_trial() -> None:
    played = play(
        [DEFAULT, AS_IS, "a", "b"],
        False,
        {DEFAULT: trial_of(DEFAULT, Outcome.HANG), AS_IS: trial_of(AS_IS, Outcome.HANG)},
    )
    assert (played.tried, played.compared) == ([DEFAULT, AS_IS, "a", "b"], [])


def test_a_default_with_wrong_data_has_failed() -> None:
    wrong = {DEFAULT: trial_of(DEFAULT, verified=False)}
    assert play([DEFAULT, "a"], False, wrong).tried == [DEFAULT, "a"]


def test_all_are_screened_and_the_one_that_promises_most_is_compared_afresh() -> None:
    fast = {"a": trial_of("a", time_us=900), "b": trial_of("b", time_us=500), "c": trial_of("c", time_us=2000)}
    gains = {"a": 0.1, "b": 0.9, "c": -0.5}
    played = play([DEFAULT, "a", "b", "c"], True, fast, lambda name, pairs: duel_of(name, pairs, gains[name]))
    assert played.tried == [DEFAULT, "a", "b", "c"]
    assert played.compared == [("b", 1), ("a", 1), ("c", 1), ("b", DUEL_PAIRS)]


def test_only_the_best_of_the_screening_have_a_heat() -> None:
    names = [f"c{i}" for i in range(8)]
    fast = {name: trial_of(name, time_us=900 - 10 * i) for i, name in enumerate(names)}
    played = play([DEFAULT, *names], True, fast)
    assert [name for name, pairs in played.compared if pairs == 1] == ["c7", "c6", "c5"]


def test_candidates_no_better_than_the_default_are_not_compared_at_length() -> None:
    played = play([DEFAULT, "a"], True, {}, lambda name, pairs: duel_of(name, pairs, 0.01))
    assert played.compared == [("a", 1)]


def test_the_inherited_settings_meet_the_default_first_since_the_user_has_them() -> None:
    assert play([DEFAULT, AS_IS, "a"], True, {}).compared == [(AS_IS, DUEL_PAIRS), ("a", 1), ("a", DUEL_PAIRS)]


def test_what_failed_had_no_effect_or_gave_wrong_data_is_never_compared() -> None:
    bad = {
        AS_IS: trial_of(AS_IS, Outcome.CRASH),
        "a": trial_of("a", Outcome.NO_EFFECT),
        "b": trial_of("b", time_us=1, verified=False),
        "c": trial_of("c", Outcome.SKIPPED),
    }
    assert play([DEFAULT, AS_IS, "a", "b", "c"], True, bad).compared == []


def test_a_comparison_that_broke_is_not_repeated() -> None:
    played = play([DEFAULT, AS_IS, "a"], True, {}, lambda name, pairs: duel_of(name, pairs, 0.2, "rank 1 hung"))
    assert played.compared == [(AS_IS, DUEL_PAIRS), ("a", 1)]


def test_after_a_process_that_cannot_be_killed_nothing_more_is_tried() -> None:
    known = Known(results=(trial_of(DEFAULT, Outcome.CRASH),), unkillable=True)
    assert next_step([candidate(DEFAULT), candidate("a")], True, DECISIONS, known) == Stop()


OUTCOMES = st.builds(
    trial_of, st.just(""), st.sampled_from(Outcome), st.floats(1, 1e5), st.sampled_from([True, True, False])
)
ENDINGS = st.lists(st.tuples(st.floats(-0.9, 3), st.booleans()), min_size=1, max_size=9)


@given(
    st.lists(st.sampled_from("abcdefg"), unique=True), st.booleans(), st.booleans(),
    st.lists(OUTCOMES, min_size=9, max_size=9), ENDINGS,
)  # fmt: skip
def test_whatever_happens_the_search_ends_default_first_and_compares_only_what_was_proved(
    others: list[str], has_as_is: bool, screen_all: bool, outcomes: list[TrialResult], endings: list[tuple[float, bool]]
) -> None:
    names = [DEFAULT, *([AS_IS] if has_as_is else []), *others]
    trials = {name: replace(outcome, candidate=name) for name, outcome in zip(names, outcomes, strict=False)}
    ending = iter(endings * 9)

    def duel(name: str, pairs: int) -> Duel:
        gain, breaks = next(ending)
        return duel_of(name, pairs, gain, "rank 0 hung" if breaks else "")

    played = play(names, screen_all, trials, duel)
    assert played.tried[0] == DEFAULT
    assert len(played.compared) <= HEATS + 2
    for name, _ in played.compared:
        assert name != DEFAULT
        assert is_sound(trials[name])
        assert is_sound(trials[DEFAULT])
    assert len({*played.compared}) == len(played.compared)
    if not is_sound(trials[DEFAULT]):
        needs_inherited = has_as_is and is_sound(trials[AS_IS])
        assert played.tried == ([DEFAULT, AS_IS] if needs_inherited else names)


def test_a_thorough_search_ends_with_the_trial_that_shows_more_of_the_default() -> None:
    last = candidate("algorithms")
    known = Known(results=(trial_of(DEFAULT),))
    assert next_step([candidate(DEFAULT)], True, DECISIONS, known, last=last) == Try(last)
    assert next_step([candidate(DEFAULT)], False, DECISIONS, known, last=last) == Stop()
    known = Known(results=(trial_of(DEFAULT), replace(trial_of("algorithms"), results=())))
    assert next_step([candidate(DEFAULT)], True, DECISIONS, known, last=last) == Stop()
    failed = Known(results=(trial_of(DEFAULT, Outcome.HANG),))
    assert next_step([candidate(DEFAULT)], True, DECISIONS, failed, last=last) == Stop()


def learnt(time_us: float) -> Baseline:
    """Return what eight nodes reach that take so long."""
    speeds = speeds_of(trial_of(DEFAULT, time_us=time_us))
    return learn((), {f"n{i}": [{point: v * (1 + 0.001 * i) for point, v in speeds.items()}] * 2 for i in range(8)})


def test_a_default_that_looks_slow_beside_the_baseline_is_repeated_before_anything_else_is_measured() -> None:
    played = play([DEFAULT, "a"], True, {}, baseline=learnt(500.0))
    assert len(played.known.repeats) == MOST_REPEATS
    assert played.tried == [DEFAULT, "a"]
    assert [result.candidate for result in played.known.results] == [DEFAULT, "a"], "repetitions teach nothing"


def test_a_default_that_is_as_fast_as_the_baseline_is_not_repeated() -> None:
    assert play([DEFAULT], False, {}, baseline=learnt(1020.0)).known.repeats == ()


def test_a_default_with_a_late_rank_is_tried_again_once() -> None:
    late = trial(results=tuple(result(each, 4 << 20, (1000.0, 5000.0)) for each in Collective))
    first = next_step([candidate(DEFAULT)], False, (), Known(results=(late,)), runs_each=2)
    assert first == Again(1, "rank 1 was late at every size")
    assert next_step([candidate(DEFAULT)], False, (), Known(results=(late,), repeats=(late,)), runs_each=2) == Stop()
    assert next_step([candidate(DEFAULT)], False, (), Known(results=(late,))) == Stop(), "bench repeats nothing"


def test_a_rank_that_waited_for_a_cpu_is_not_tried_again_by_what_is_late_for_a_gpu() -> None:
    late = trial(results=tuple(result(each, 4 << 20, (100.0, 180.0)) for each in Collective))
    known = Known(results=(late,))
    assert next_step([candidate(DEFAULT)], False, (), known, runs_each=2, on_gpus=False) == Stop()
    assert isinstance(next_step([candidate(DEFAULT)], False, (), known, runs_each=2, on_gpus=True), Again)


def test_repetitions_end_once_they_clear_the_node() -> None:
    fine = trial_of("repetition 1", time_us=400.0)
    played = play([DEFAULT], False, {DEFAULT: trial_of(DEFAULT, time_us=510.0)}, baseline=learnt(500.0),
                  repeat=lambda _: fine)  # fmt: skip
    assert played.known.repeats == (fine,)


def test_a_repetition_that_fails_ends_them_and_a_default_that_fails_has_none() -> None:
    hung = trial_of("repetition 1", Outcome.HANG)
    assert play([DEFAULT], False, {}, baseline=learnt(500.0), repeat=lambda _: hung).known.repeats == (hung,)
    broken = {DEFAULT: trial_of(DEFAULT, Outcome.HANG)}
    assert play([DEFAULT], False, broken, baseline=learnt(500.0)).known.repeats == ()
