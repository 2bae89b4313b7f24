"""A hang, its search and its control on a machine of 8 GPUs, played on a clock that knows what each step costs."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from preflight.model.collective import Collective
from preflight.model.profile import Profile
from preflight.model.run_spec import Measure
from preflight.model.trial import Candidate, Control, Outcome, RankEnd, Rerun, Setting, TrialResult
from preflight.search.profiles import stage_limits
from preflight.search.settings.candidates import DEFAULT_CANDIDATE
from preflight.search.settings.closing import has_time_for
from preflight.search.settings.control import PROVISIONAL_TEXT, Proof, proof_of, proof_text
from preflight.search.settings.minimise import Cure
from preflight.search.settings.search import next_step, to_failure
from preflight.search.settings.steps import Known, Repeat, Stop, Try
from preflight.trial.rank.step import LEAST_S
from tests.node_facts import MIB, result, trial
from tests.search.flapping import SETTINGS

BEFORE_S = 60.0  # probe and GPU tests; 25 s of it for the 10 contexts that these make one after another
CONTEXT_S, START_S, RELEASE_S = 2.5, 4.0, 5.0  # of CUDA, of NCCL, of what a killed rank had on its GPU
STEP_S = 0.25  # one collective at one size
AFTER_S = 1.9  # the conductor's margin, judging and writing
CURE_MEASURES = tuple(
    Measure(collective, size, 0.1, 5, 20)
    for size in (8, MIB, 1 << 30)
    for collective in (Collective.ALL_REDUCE, Collective.ALL_GATHER)
)


@dataclass
class Clocked:
    """What a search came to, and when."""

    results: tuple[TrialResult, ...]
    control: Control
    took_s: float

    @property
    def proof(self) -> Proof:
        return proof_of(self.control, self.results)


def tried(candidate: Candidate, cause: Setting, measures: int) -> tuple[TrialResult, float]:
    """Return a trial on a machine whose first collective hangs without one setting, and how long it took."""
    if dict(cause.env).items() <= dict(candidate.env).items():
        took_s = CONTEXT_S + START_S + measures * STEP_S
        done = tuple(result(each.collective, each.nominal_bytes, (1000.0,) * 8) for each in CURE_MEASURES[:measures])
        return trial(
            candidate.name, world_size=8, env=candidate.env, reason=candidate.reason, results=done, duration_s=took_s
        ), took_s
    took_s = CONTEXT_S + START_S + stage_limits("nccl", None).first_s + RELEASE_S
    ends = tuple(RankEnd(rank, "timeout", "first", "") for rank in range(8))
    hung = trial(
        candidate.name, Outcome.HANG, 8, env=candidate.env, reason=candidate.reason, ranks=ends, culprits=(),
        problem="all ranks timed out waiting: at the first collective", duration_s=took_s,
    )  # fmt: skip
    return hung, took_s


def play(profile: Profile, cause: Setting, suspects: tuple[str, ...] = ()) -> Clocked:
    """Play a run from its start to its answer."""
    now_s = BEFORE_S
    results: tuple[TrialResult, ...] = ()
    reruns: tuple[Rerun, ...] = ()
    chosen: Candidate | None = None
    for _ in range(100):
        left_s = profile.effort.deadline_s - AFTER_S - now_s
        known = Known(results=results, reruns=reruns, suspects=suspects, left_s=left_s, seed=11)
        step = next_step(
            (DEFAULT_CANDIDATE,),
            False,
            (),
            known,
            SETTINGS,
            cure_measures=CURE_MEASURES,
            runs_each=profile.effort.runs_each,
        )
        match step:
            case Stop():
                chosen = step.chosen
                break
            case Try(candidate=candidate, to_failure=is_short):
                count = len(to_failure(CURE_MEASURES, ()) if is_short else CURE_MEASURES)
                ended, took_s = tried(candidate, cause, count)
                results = (*results, ended)
            case Repeat(candidate=candidate):
                ended, took_s = tried(candidate, cause, 1)
                reruns = (*reruns, step.ended(ended, took_s))
            case other:
                raise AssertionError(f"a search for a cure does not {other}")
        now_s += took_s
    named = (chosen.name, chosen.env) if chosen else ("", ())
    return Clocked(results, Control(11, profile.effort.runs_each, *named, reruns), now_s + AFTER_S)


SUSPECTS = [("p2p",), ("ib",), ()]


@pytest.mark.parametrize("suspects", SUSPECTS, ids=["the right ones", "the wrong ones", "none"])
@pytest.mark.parametrize("cause", SETTINGS, ids=lambda cause: cause.name)
def test_standard_finds_exactly_the_cause_and_proves_it_in_900_s(cause: Setting, suspects: tuple[str, ...]) -> None:
    run = play(Profile.STANDARD, cause, suspects)
    assert run.took_s <= 900
    assert run.control.env == cause.env
    assert run.proof is Proof.PROVED


@pytest.mark.parametrize("suspects", SUSPECTS, ids=["the right ones", "the wrong ones", "none"])
@pytest.mark.parametrize("cause", SETTINGS, ids=lambda cause: cause.name)
def test_quick_has_settings_that_were_shown_to_cure_in_180_s_and_says_what_is_provisional(
    cause: Setting, suspects: tuple[str, ...]
) -> None:
    run = play(Profile.QUICK, cause, suspects)
    assert run.took_s <= 180
    assert dict(cause.env).items() <= dict(run.control.env).items()
    assert run.proof is Proof.PROVISIONAL
    assert PROVISIONAL_TEXT in proof_text(run.control, run.results[0])


@pytest.mark.parametrize("cause", SETTINGS[7:], ids=lambda cause: cause.name)
def test_quick_finds_the_cause_itself_where_what_it_used_makes_it_suspect(cause: Setting) -> None:
    run = play(Profile.QUICK, cause, ("p2p",))
    assert len(run.control.env) <= 2
    assert len(run.control.turns(run.control.chosen)) >= 2


def test_a_search_ends_in_time_for_one_run_of_each_if_the_next_trial_fails() -> None:
    default, _ = tried(DEFAULT_CANDIDATE, SETTINGS[0], 1)
    worked, _ = tried(Candidate("c", SETTINGS[0].env, "", SETTINGS[0].scope), SETTINGS[0], 6)
    step = Cure(DEFAULT_CANDIDATE, SETTINGS[:2])
    pair_s = default.duration_s + worked.duration_s
    enough = Known(results=(default, worked), left_s=default.duration_s + pair_s)
    too_little = Known(results=(default, worked), left_s=default.duration_s + pair_s - 0.1)
    assert has_time_for(step, default, enough, 1)
    assert not has_time_for(step, default, too_little, 1)


def test_a_hang_is_known_after_15_s_and_a_start_of_45_s_is_none() -> None:
    limits = stage_limits("nccl", None)
    assert (limits.first_s, LEAST_S.value) == (15, 15)
    assert limits.init_s > 45


def test_without_time_to_go_back_the_control_is_open() -> None:
    reruns = (Rerun("default", (), Outcome.HANG, "", 1.0, "c", 2),)
    assert proof_of(Control(1, 2, "c", SETTINGS[0].env, reruns), ()) is Proof.OPEN


def test_a_short_trial_reaches_the_size_of_the_failures_or_is_the_smallest_there_is() -> None:
    small, large = (Measure(Collective.ALL_REDUCE, size, 1.0, 1, 1) for size in (1 << 10, 1 << 20))
    between = Measure(Collective.ALL_GATHER, 1 << 15, 1.0, 1, 1)
    assert to_failure((large, small), ()) == (small,)
    assert to_failure((large, small), (between,)) == (small, between)
    assert to_failure((large, small), (large,)) == (small, large)
