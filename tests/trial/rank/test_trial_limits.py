"""How long a step of a trial may take: a hang must be told from a slow link, and in time."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st
from torch._C._distributed_c10d import FileStore

from preflight.model.collective import Collective
from preflight.model.run_spec import Assignment, Backend, Measure, RankGpus, StageLimits, StorePlace, stretched_s
from preflight.trial.rank.buffers import Ranks
from preflight.trial.rank.trial import _measure_all, expected_step_s

MIB = 1 << 20
LIMITS = StageLimits(60, 90, 30, 15, stretches=True)


def measure(size_bytes: int) -> Measure:
    return Measure(Collective.ALL_REDUCE, size_bytes, budget_s=0.15, min_repetitions=3, max_repetitions=5)


def test_a_hang_after_the_smallest_size_is_told_within_half_a_minute() -> None:
    assert stretched_s(expected_step_s(measure(MIB), None)) < 30


def test_the_smallest_size_says_nothing_of_larger_ones(tmp_path: Path) -> None:
    store, told = FileStore(str(tmp_path / "store"), 1), list[dict[str, Any]]()
    assignment = Assignment(
        "0", 0, 0, 1, Backend("gloo", "", "gloo"), RankGpus(), StorePlace(""), LIMITS,
        measures=(measure(8), measure(MIB), measure(32 * MIB)),
    )  # fmt: skip
    dist.init_process_group("gloo", store=store, rank=0, world_size=1, timeout=timedelta(seconds=10))
    try:
        _measure_all(assignment, store, Ranks(0, 1, torch.device("cpu")), told.append)
    finally:
        dist.destroy_process_group()
    small, middle, large = (event["expected_s"] for event in told if "expected_s" in event)
    assert small < 0.2 and middle == pytest.approx(0.15 + 10 * MIB / 10e6)
    assert large != pytest.approx(0.15 + 320 * MIB / 10e6)  # that of 1 MiB does


def test_a_rank_raises_before_its_supervisor_calls_it_hung() -> None:
    for expected_s in (0.0, 0.2, 3.0, 100.0):
        limit_s = LIMITS.for_stage("timed", expected_s)
        assert limit_s == max(15, stretched_s(expected_s))
        assert (
            LIMITS.own_timeout_s("timed", expected_s) < 0.8 * limit_s < limit_s < LIMITS.watchdog_s("timed", expected_s)
        )


def test_each_stage_has_its_own_limit_and_only_where_it_may_it_stretches() -> None:
    stages = ("spawned", "device", "store", "init", "first", "timed", "verified")
    assert [LIMITS.for_stage(stage) for stage in stages] == [60, 60, 60, 90, 30, 15, 15]
    fixed = StageLimits(60, 90, 30, 15, stretches=False)
    assert (LIMITS.for_stage("timed", 10.0), fixed.for_stage("timed", 10.0)) == (90, 15)


@given(st.floats(0, 1e4))
def test_a_step_has_three_times_its_time_and_not_much_more_than_a_minute_beside(expected_s: float) -> None:
    assert 3 * expected_s <= stretched_s(expected_s) <= min(20 * expected_s, 3 * expected_s + 60)
