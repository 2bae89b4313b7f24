"""How long a child may be silent: by its stage, and not for time in which it or its supervisor did not run."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import replace

import pytest

from preflight.model.run_spec import StageLimits
from preflight.trial.rank.children import Child, forgive, is_overdue, limit_s
from tests.trial.rank.test_children import LIMIT_S, LIMITS, assignment, running

SHORT = StageLimits(0.05, 0.05, 0.05, 0.05, stretches=False)


@pytest.mark.parametrize(
    ("stage_name", "limit"),
    [("spawned", 30), ("device", 30), ("store", 30), ("init", 10), ("first", 11), ("timed 3/8", 15), ("verified", 15)],
)
def test_every_stage_has_its_limit(stage_name: str, limit: float) -> None:
    assert limit_s(Child(1, assignment=assignment(), started_by="fork", stage=stage_name), LIMITS) == limit


def test_a_step_that_should_take_long_has_twenty_times_as_long_unless_the_limit_was_given() -> None:
    child = Child(1, assignment=assignment(), started_by="fork", stage="timed 1/8", expected_s=3.0)
    assert limit_s(child, LIMITS) == 60
    assert limit_s(child, replace(LIMITS, stretches=False)) == 15


def test_a_child_that_gave_up_waiting_is_overdue_at_the_limit_and_one_that_is_done_or_failed_never() -> None:
    for how, overdue in (("timeout", True), ("connection", True), ("done", False), ("error", False)):
        child = Child(1, assignment=assignment(), started_by="fork", moved_at=time.monotonic() - 1)
        child.ended(how, "")
        assert is_overdue(child, SHORT) is overdue


def test_time_in_which_the_supervisor_itself_stood_still_is_not_the_child_s() -> None:
    with running("sleep 60") as child:
        child.moved_at -= 40.0
        assert is_overdue(child, LIMITS)
        forgive([child], 32.0)
        assert not is_overdue(child, LIMITS)


def test_a_child_that_gets_no_cpu_is_not_silent_and_one_that_sleeps_is() -> None:
    cpu = min(os.sched_getaffinity(0))

    spin = [sys.executable, "-c", "while True: pass"]
    with (
        subprocess.Popen(spin) as hog,
        subprocess.Popen(spin) as starved,
        subprocess.Popen(["sleep", "100"]) as asleep,
    ):
        try:
            for process in (hog, starved):
                os.sched_setaffinity(process.pid, {cpu})
            os.sched_setscheduler(starved.pid, os.SCHED_IDLE, os.sched_param(0))
            slow, hung = (
                Child(process.pid, -1, assignment=assignment(), started_by="fork") for process in (starved, asleep)
            )
            until = time.monotonic() + LIMIT_S
            while slow.starved_s() < max(2.0, 0.8 * slow.silent_s()):
                assert time.monotonic() < until, "the kernel keeps no schedstat, or gave the idle process its CPU"
                time.sleep(0.05)
            half = slow.silent_s() / 2
            assert not slow.is_silent_for(half)
            assert hung.is_silent_for(half) and hung.starved_s() < half
        finally:
            for process in (hog, starved, asleep):
                process.kill()
