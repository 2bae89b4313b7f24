"""Faults that come and go are no setting's to cure; steady ones keep exactly the settings that cure them."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from random import Random

import pytest

from preflight.model.profile import Profile
from preflight.model.trial import AS_IS, DEFAULT, Candidate, Control, Outcome, Rerun, Scope, Setting, TrialResult, odds
from preflight.search.settings.closing import MOST_PAIRS
from preflight.search.settings.control import (
    Proof,
    Tally,
    Way,
    intermittent,
    odds_of,
    order_of_turns,
    proof_of,
    proof_text,
    tallies,
)
from preflight.search.settings.minimise import env_of
from preflight.search.settings.steps import Known
from tests.node_facts import trial
from tests.search.flapping import ENDINGS, RHYTHMS, SETTINGS, failed, is_false_cure, simulate
from tests.search.searching import search

RUNS = 286  # by rhythm: 2,000 in all with seven of them


@pytest.mark.heavy(3)
@pytest.mark.parametrize("profile", Profile)
def test_of_2000_faults_that_come_and_go_no_more_are_cured_than_the_bound_says(profile: Profile) -> None:
    bound = 1 / odds(profile.effort.runs_each, profile.effort.runs_each)
    for name, rhythm in RHYTHMS.items():
        false = sum(is_false_cure(simulate(rhythm, profile, seed)) for seed in range(RUNS))
        spread = 3 * (RUNS * bound * (1 - bound)) ** 0.5
        assert false <= RUNS * bound + spread, (name, false)


@pytest.mark.parametrize("profile", Profile)
def test_a_fault_in_the_first_trial_only_is_never_cured(profile: Profile) -> None:
    done = [simulate(lambda _, __: False, profile, seed) for seed in range(200)]
    assert sum(map(is_false_cure, done)) == 0
    assert all(proof_of(each.control, each.results) is Proof.INTERMITTENT for each in done)


STEADY = [*combinations(SETTINGS, 1), *list(combinations(SETTINGS, 2))[::4], *list(combinations(SETTINGS, 3))[::20]]


@pytest.mark.parametrize("needed", STEADY, ids=["+".join(each.name for each in needed) for needed in STEADY])
@pytest.mark.parametrize("profile", Profile)
def test_a_steady_fault_keeps_exactly_the_fewest_settings_and_is_proved_as_far_as_the_profile_goes(
    needed: tuple[Setting, ...], profile: Profile
) -> None:
    wanted = dict(env_of(needed)).items()

    def run(candidate: Candidate) -> TrialResult:
        works = wanted <= dict(candidate.env).items()
        ending = ENDINGS[len(needed) % len(ENDINGS)]
        return trial(candidate.name, env=candidate.env, reason=candidate.reason) if works else failed(candidate, ending)

    done = search(SETTINGS, run, known=Known(seed=3), runs_each=profile.effort.runs_each)
    assert dict(done.control.env) == dict(wanted)
    assert proof_of(done.control, done.results) is (Proof.PROVISIONAL if profile is Profile.QUICK else Proof.PROVED)
    repeated = [each for each in done.control.reruns if not each.control and each.env != done.control.env]
    assert len(needed) == 1 or len(repeated) == len(needed)
    assert repeated or len(needed) == 1
    assert all(each.outcome is not Outcome.OK for each in repeated)


def test_at_least_twenty_steady_faults_are_tried() -> None:
    assert len(STEADY) >= 20


def test_the_order_of_the_turns_is_another_for_another_seed_and_has_as_many_of_each() -> None:
    orders = {order_of_turns(seed, "x", 4) for seed in range(300)}
    assert all(sum(order) == 4 and len(order) == 8 for order in orders)
    assert len(orders) > 60  # of 70
    assert order_of_turns(7, "x", 4) == order_of_turns(7, "x", 4)


def test_every_order_is_drawn_about_as_often() -> None:
    drawn = [order_of_turns(seed, "x", 2) for seed in range(1200)]
    counts = [drawn.count(order) for order in set(drawn)]
    assert len(counts) == 6
    assert max(counts) < 2 * min(counts)


def rerun(candidate: str, outcome: Outcome, control: str = "c") -> Rerun:
    env = () if candidate in (DEFAULT, AS_IS) else (("NCCL_S0", "1"),)
    return Rerun(candidate, env, outcome, "", 1.0, control, 2)


def test_what_is_inherited_is_told_apart_from_the_default_though_neither_sets_anything() -> None:
    found = tallies((trial(), trial(AS_IS, Outcome.HANG)), ())
    assert [each.ways for each in found] == [(Way.WORKS,), (Way.HANG,)]
    assert intermittent((trial(), trial(AS_IS, Outcome.HANG)), ()) == ()


def test_failing_in_another_way_is_not_failing_alike() -> None:
    found = intermittent((trial(outcome=Outcome.HANG),), (rerun(DEFAULT, Outcome.WRONG_DATA),))
    assert found[0].text() == "the default settings hung in 1 and gave wrong data in 1 of 2 tries"
    assert not intermittent((trial(outcome=Outcome.CRASH),), (rerun(DEFAULT, Outcome.INIT_ERROR),))


def test_failing_at_another_place_is_not_failing_alike_but_wrong_data_may_be_anywhere() -> None:
    def ended(outcome: Outcome, *places: str) -> tuple[Tally, ...]:
        first = trial(outcome=outcome, failed_in=places[0])
        return intermittent((first,), [replace(rerun(DEFAULT, outcome), failed_in=each) for each in places[1:]])

    assert ended(Outcome.HANG, "start", "all_reduce", "all_reduce")[0].text() == (
        "the default settings hung at the start in 1 and hung during all_reduce in 2 of 3 tries"
    )
    assert not ended(Outcome.HANG, "all_reduce", "all_reduce")
    assert not ended(Outcome.HANG, "all_reduce", ""), "a place that is not known differs from none"
    assert not ended(Outcome.WRONG_DATA, "all_reduce", "all_gather")


def test_settings_that_always_work_cure_a_default_that_fails_elsewhere_each_time() -> None:
    places = iter(("start", *["all_reduce"] * 99))

    def run(candidate: Candidate) -> TrialResult:
        ended = failed(candidate, Outcome.HANG)
        return trial(candidate.name, env=candidate.env) if candidate.env else replace(ended, failed_in=next(places))

    done = search(SETTINGS, run, known=Known(seed=3), runs_each=4)
    assert intermittent(done.results, done.control.reruns)
    assert proof_of(done.control, done.results) is Proof.PROVED


def blocks(*ends: str) -> Control:
    """Return a control with a block for each word, in which the default hung or worked (h, w); the settings worked."""
    turns = [
        Rerun(name, env, outcome, "", 1.0, "c", len(each))
        for each in ends
        for end in each
        for name, env, outcome in (
            (DEFAULT, (), Outcome.HANG if end == "h" else Outcome.OK),
            ("c", (("NCCL_S0", "1"),), Outcome.OK),
        )
    ]
    return Control(1, 4, "c", (("NCCL_S0", "1"),), tuple(turns))


@pytest.mark.parametrize(
    ("ends", "odds_shown", "proof"),
    [
        (("hhhh",), 70, Proof.PROVED),
        (("hhhw",), 14, Proof.INTERMITTENT),
        (("hhhw", "hhwh"), 14 * 14, Proof.PROVED),
        (("hwww", "hwww", "wwwh"), 8, Proof.INTERMITTENT),
        (("h",), 2, Proof.PROVISIONAL),
        (("wwww",), 1, Proof.INTERMITTENT),
    ],
)
def test_fishers_exact_test_decides_and_blocks_multiply(ends: tuple[str, ...], odds_shown: int, proof: Proof) -> None:
    control = blocks(*ends)
    tried = (trial(outcome=Outcome.HANG), trial("c", env=control.env))
    assert (odds_of(control), proof_of(control, tried)) == (odds_shown, proof)
    failures, runs = "".join(ends).count("h"), len("".join(ends))
    assert (
        f"{failures} of {runs} runs with the default settings hung, and {runs} of {runs} with the workaround worked"
        in proof_text(control, tried[0])
    )


def test_one_failure_with_the_settings_makes_them_no_cure() -> None:
    control = blocks("hhhh")
    failed_once = replace(control, reruns=(*control.reruns[:-1], replace(control.reruns[-1], outcome=Outcome.HANG)))
    assert proof_of(failed_once, (trial(outcome=Outcome.HANG), trial("c", env=control.env))) is Proof.INTERMITTENT


@pytest.mark.parametrize("profile", [Profile.STANDARD, Profile.BURN])
@pytest.mark.parametrize("ending", ENDINGS)
def test_turns_go_on_for_a_default_that_fails_in_three_of_four_runs(profile: Profile, ending: Outcome) -> None:
    number, cure = [0], SETTINGS[8].env[0]

    def run(candidate: Candidate) -> TrialResult:
        number[0] += not candidate.env
        if cure in candidate.env or (not candidate.env and number[0] % 4 == 0):
            return trial(candidate.name, env=candidate.env, reason=candidate.reason)
        return failed(candidate, ending)

    done = search(SETTINGS, run, known=Known(seed=3), runs_each=profile.effort.runs_each)
    assert proof_of(done.control, done.results) is Proof.PROVED
    assert done.control.env == (cure,)
    turns = done.control.turns(done.control.chosen)
    assert profile.effort.runs_each < len(turns) / 2 <= MOST_PAIRS
    short = search(SETTINGS, run, known=Known(seed=3, left_s=1.0), runs_each=profile.effort.runs_each)
    assert len(short.control.turns(short.control.chosen)) < len(turns)


def test_a_turn_that_was_not_made_proves_nothing() -> None:
    control = Control(1, 2, "c", (("NCCL_S0", "1"),), (rerun(DEFAULT, Outcome.HANG), rerun("c", Outcome.SKIPPED)))
    assert proof_of(control, (trial(outcome=Outcome.HANG),)) is Proof.OPEN


def test_a_candidate_that_fails_beside_a_default_that_works_is_tried_again_beside_it() -> None:
    as_is = Candidate(AS_IS, (), "", Scope.ANYWHERE)
    random = Random(1)

    def steady(candidate: Candidate) -> TrialResult:
        return failed(candidate, Outcome.HANG) if candidate.name == AS_IS else trial(candidate.name)

    def once(candidate: Candidate) -> TrialResult:
        return failed(candidate, Outcome.HANG) if random.random() < 0.5 else trial(candidate.name)

    candidates = (Candidate(DEFAULT, (), "", Scope.ANYWHERE), as_is)
    done = search((), steady, candidates)
    assert len(done.control.turns(AS_IS)) == 4
    assert not intermittent(done.results, done.control.reruns)
    ended = [search((), once, candidates, known=Known(seed=seed)) for seed in range(60)]
    met = [each for each in ended if [one.outcome for one in each.results] == [Outcome.OK, Outcome.HANG]]
    unnoticed = [each for each in met if not intermittent(each.results, each.control.reruns)]
    assert len(unnoticed) <= len(met) / 3
