"""`preflight check` reads its own failed trials with the reader of `explain`."""

from __future__ import annotations

from dataclasses import replace

from preflight.explain.trial import with_cause
from preflight.model.trial import Outcome, RankEnd
from tests.reports import failed_trial

SHM = "NCCL error\nLast error:\nError while creating shared memory segment /dev/shm/nccl-7b044b (size 7340384)"


def test_a_failed_trial_carries_the_cause_that_its_ranks_prove() -> None:
    trial = replace(
        failed_trial("default"), ranks=(RankEnd(1, "error", "init", SHM),), problem="crashed: rank 1 in stage init"
    )
    told = with_cause(trial).problem
    assert told.startswith("crashed: rank 1 in stage init: Shared memory (/dev/shm) is too small")
    assert "[shm_too_small]" in told


def test_a_trial_whose_ranks_only_waited_says_no_more_than_before() -> None:
    waited = "RuntimeError: Timed out waiting 7000ms for recv operation to complete"
    trial = replace(failed_trial("default"), ranks=(RankEnd(0, "timeout", "first", waited),))
    assert with_cause(trial) == trial


def test_a_trial_that_works_is_left_alone() -> None:
    trial = replace(failed_trial("default"), outcome=Outcome.OK, ranks=(RankEnd(0, "done", "done", SHM),))
    assert with_cause(trial) == trial
