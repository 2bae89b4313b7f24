"""Whether a step leaves time for the control, to the second."""

from __future__ import annotations

from dataclasses import replace

import pytest

from preflight.model.trial import Outcome, Scope, Setting, TrialResult
from preflight.search.settings.closing import has_time_for, leaves_time
from preflight.search.settings.minimise import Cure
from preflight.search.settings.steps import Known
from tests.node_facts import trial

SETTING = Setting("NCCL_P2P_DISABLE", (("NCCL_P2P_DISABLE", "1"),), (), Scope.ANYWHERE)
FAILS_S, WORKS_S, RUNS = 10.0, 5.0, 3
ALL_S = RUNS * (FAILS_S + WORKS_S)


def known(left_s: float) -> Known:
    return Known(results=(default(), trial("cure", duration_s=WORKS_S)), left_s=left_s)


def default() -> TrialResult:
    return trial(outcome=Outcome.HANG, duration_s=FAILS_S)


def cure(*, repeats: bool = False, empty: bool = False) -> Cure:
    return Cure(None, () if empty else (SETTING,), repeats=repeats)


@pytest.mark.parametrize(
    ("repeats", "needs_s"),
    [
        (True, FAILS_S + ALL_S),  # it fails once more, then the whole control
        (False, WORKS_S + ALL_S),  # it works, then the whole control; if it fails, one pair fits as well
    ],
)
def test_the_step_and_the_whole_control_must_fit(repeats: bool, needs_s: float) -> None:
    assert has_time_for(cure(repeats=repeats), default(), known(needs_s), RUNS)
    assert not has_time_for(cure(repeats=repeats), default(), known(needs_s - 0.1), RUNS)


def test_of_a_step_that_fails_one_pair_must_fit() -> None:
    needs_s = FAILS_S + FAILS_S + WORKS_S  # more than a control of one run each after a step that works
    assert has_time_for(cure(), default(), known(needs_s), 1)
    assert not has_time_for(cure(), default(), known(needs_s - 0.1), 1)


def test_what_has_nothing_to_control_always_fits() -> None:
    assert has_time_for(cure(empty=True), default(), known(0.0), RUNS)
    assert has_time_for(cure(), default(), known(0.0), 0)


def test_one_more_failure_leaves_time_for_the_whole_control() -> None:
    assert leaves_time(default(), known(FAILS_S + ALL_S), RUNS)
    assert not leaves_time(default(), known(FAILS_S + ALL_S - 0.1), RUNS)


def test_only_runs_that_worked_with_other_settings_say_how_long_such_a_run_takes() -> None:
    slow = trial("slow", outcome=Outcome.HANG, duration_s=90.0)
    others = (trial("first", duration_s=70.0), trial("cure", duration_s=1.0), trial("cure", duration_s=WORKS_S))
    seen = Known(results=(*others, slow, default()), left_s=FAILS_S + ALL_S)
    assert leaves_time(default(), seen, RUNS)
    assert not leaves_time(default(), replace(seen, left_s=FAILS_S + ALL_S - 0.1), RUNS)
