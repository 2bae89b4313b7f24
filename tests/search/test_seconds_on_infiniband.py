"""What a search between two nodes takes if real adapters lose packets: computed from limits and retries, not measured.

NCCL gives a packet up after 34 to 137 s. Each trial is taken to need 5 s for the CUDA contexts, 5 s for NCCL's start
and 8 s for the measurements; before the first one the nodes have been probed and have met.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from preflight.model.profile import Profile
from preflight.model.trial import Outcome, TrialResult
from preflight.search.profiles import stage_limits
from preflight.search.settings.infiniband import AFTER_GIVING_UP_S, GIVES_UP_S, losing_trial_s
from preflight.search.settings.search import next_step
from preflight.search.settings.steps import Known, Next, Repeat, Try
from tests.search.searching import Searched, play
from tests.search.settings.test_without_infiniband import TWO, losing, planned

BEFORE_S, CONTEXTS_S, START_S, MEASURE_S = 30.0, 5.0, 5.0, 8.0
LIMIT_S = stage_limits("nccl", None, 2).first_s


def seconds(profile: Profile, lost: tuple[str, ...], gives_up_s: float) -> tuple[Searched, float]:
    """Return a search whose trials lose packets on these ports, and the seconds that it takes."""
    spent_s = BEFORE_S

    def run(step: Next) -> TrialResult:
        nonlocal spent_s
        assert isinstance(step, (Try, Repeat))
        # If the trial's limit comes first, NCCL has not named the port yet.
        result = losing(*lost, hcas=TWO, named=gives_up_s + AFTER_GIVING_UP_S < LIMIT_S)(step.candidate)
        fails_s = min(gives_up_s + AFTER_GIVING_UP_S, LIMIT_S)
        took_s = CONTEXTS_S + START_S + (fails_s if result.outcome is Outcome.HANG else MEASURE_S)
        spent_s += took_s
        return replace(result, duration_s=took_s)

    def following(known: Known) -> Next:
        now = replace(known, left_s=profile.effort.deadline_s - spent_s)
        return next_step(planned(*TWO), False, (), now, runs_each=profile.effort.runs_each)

    return play(following, run, Known(node_sizes=(1, 1)), profile.effort.runs_each), spent_s


@pytest.mark.parametrize("gives_up_s", GIVES_UP_S)
@pytest.mark.parametrize("lost", [TWO[:1], TWO])
def test_standard_finds_and_proves_a_cure_before_its_deadline(lost: tuple[str, ...], gives_up_s: float) -> None:
    done, spent_s = seconds(Profile.STANDARD, lost, gives_up_s)
    ends = [each.outcome is Outcome.OK for each in done.control.turns(done.control.chosen)]
    runs = Profile.STANDARD.effort.runs_each
    assert (ends.count(True), ends.count(False)) == (runs, runs), "every run of the workaround works, no other does"
    assert 6 * 60 < spent_s <= Profile.STANDARD.effort.deadline_s, f"docs/two-boxes.md gives 7 to 15 minutes: {spent_s}"


def test_quick_has_no_time_for_the_whole_control() -> None:
    done, _ = seconds(Profile.QUICK, TWO[:1], GIVES_UP_S[0])
    assert done.best == {"NCCL_IB_HCA": "=mlx5_1:1"}
    assert 0 < len(done.control.turns(done.control.chosen)) < 2 * Profile.QUICK.effort.runs_each
    assert not seconds(Profile.QUICK, TWO, GIVES_UP_S[1])[0].control.reruns


def test_a_trial_that_loses_packets_ends_at_its_limit_at_the_latest() -> None:
    assert losing_trial_s(LIMIT_S) == (GIVES_UP_S[0] + AFTER_GIVING_UP_S, LIMIT_S)
