from __future__ import annotations

import pytest

from preflight.judge.run.intermittent import intermittent
from preflight.judge.run.trial_as_is_failed import trial_failed
from preflight.model.finding import Blame, CheckOutcome, Severity, Unseen
from preflight.model.trial import DEFAULT, NO_CONTROL, Control, Outcome, Rerun
from tests.judge.findings import applies_not, found, only, skips
from tests.node_facts import case, gpu_case, trial


def control(*outcomes: Outcome, chosen: str = "") -> Control:
    return Control(1, 2, chosen, (), tuple(Rerun(DEFAULT, (), each, "", 1.0) for each in outcomes))


def test_a_default_that_failed_once_and_worked_once_comes_and_goes() -> None:
    finding = only(found(intermittent, gpu_case(trial(outcome=Outcome.HANG), control=control(Outcome.OK))))
    assert (finding.severity, finding.blame, finding.is_unconfirmed) == (Severity.FAIL, Blame.HOST, True)
    assert "the default settings hung in 1 of 2 tries" in finding.problem


def test_wrong_data_that_come_and_go_accuse_the_gpu_at_once() -> None:
    wrong = trial(outcome=Outcome.WRONG_DATA)
    finding = only(found(intermittent, gpu_case(wrong, control=control(Outcome.OK, Outcome.WRONG_DATA))))
    assert (finding.blame, finding.is_unconfirmed) == (Blame.GPU, False)
    assert "gave wrong data in 2 of 3 tries" in finding.problem


def test_what_fails_alike_each_time_is_not_called_intermittent() -> None:
    assert found(intermittent, case(trial(outcome=Outcome.HANG), control=control(Outcome.HANG))) == ()


def test_a_default_that_never_works_and_fails_elsewhere_each_time_was_not_seen_once() -> None:
    again = Control(1, 2, "", (), (Rerun(DEFAULT, (), Outcome.HANG, "", 1.0, failed_in="all_gather"),))
    tried = gpu_case(trial(outcome=Outcome.HANG, failed_in="start"), control=again)
    finding = only(found(intermittent, tried))
    assert (
        "the same settings fail differently each time: the default settings hung at the start in 1" in finding.problem
    )
    assert (finding.is_unconfirmed, only(found(trial_failed, tried)).is_unconfirmed) == (False, False)


@pytest.mark.parametrize("no_second_try", [control(Outcome.SKIPPED), NO_CONTROL, None])
def test_what_failed_and_was_not_tried_again_was_not_looked_at(no_second_try: Control | None) -> None:
    (skipped,) = skips(intermittent, case(trial(outcome=Outcome.HANG), control=no_second_try))
    assert (skipped.outcome, skipped.costs) == (CheckOutcome.NOT_RUN, Unseen.NOTHING)
    assert "not repeated" in skipped.reason


@pytest.mark.parametrize("control", [NO_CONTROL, None])
def test_a_default_that_works_gives_nothing_to_look_at(control: Control | None) -> None:
    assert "did not fail" in applies_not(intermittent, case(trial(), control=control))


def test_a_hang_that_was_seen_once_is_unconfirmed_and_one_that_came_again_is_not() -> None:
    once = only(found(trial_failed, case(trial(outcome=Outcome.HANG), control=NO_CONTROL)))
    twice = only(found(trial_failed, case(trial(outcome=Outcome.HANG), control=control(Outcome.HANG))))
    assert (once.is_unconfirmed, twice.is_unconfirmed) == (True, False)
