"""The GPUs are seen to be free before the next trial, and whoever can't say so delays nobody for long."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preflight.model.run_spec import Backend, NodePlace, RunSpec, StageLimits, TrialPlan
from preflight.search.settings.candidates import DEFAULT_CANDIDATE
from preflight.trial.rank.channel import Channel
from preflight.trial.rank.conductor import Conductor
from preflight.trial.rank.gpu_release import SLACK_BYTES, GpuKeeper, still_held
from preflight.trial.rank.step import Rank
from tests.nvmlsim.machine import uuid
from tests.nvmlsim.machines import L20X10
from tests.nvmlsim.simulate import LIBRARY, simulate

FILLING = """
import json, sys
used = [0, 900, 900, 0]
for _ in sys.stdin:
    print(json.dumps({"GPU-a": used.pop(0) << 20 if used else 0}), flush=True)
"""


def keeper(code: str, *uuids: str) -> GpuKeeper:
    return GpuKeeper(uuids or ("GPU-a",), [sys.executable, "-c", code])


def test_the_keeper_reads_the_memory_of_a_simulated_machine(tmp_path: Path) -> None:
    simulate(L20X10, tmp_path)
    library = str(tmp_path / LIBRARY)
    kept = GpuKeeper((uuid(6), uuid(7)), [sys.executable, "-m", "preflight.system.nvml_keeper", library])
    try:
        assert set(kept._before) == {uuid(6), uuid(7)}
        assert kept.wait_until_released(0) == ""
    finally:
        kept.close()


def test_it_is_waited_until_the_memory_is_back() -> None:
    kept = keeper(FILLING)
    try:
        assert kept.wait_until_released() == ""
    finally:
        kept.close()


def test_memory_that_does_not_come_back_is_told() -> None:
    kept = keeper(FILLING.replace("else 0", "else 700 << 20").replace("used = [0, 900, 900, 0]", "used = [0]"))
    try:
        assert "GPU-a 700 MiB" in kept.wait_until_released(0.3)
    finally:
        kept.close()


@pytest.mark.timing
def test_a_keeper_that_is_silent_dead_or_talks_nonsense_delays_nobody() -> None:
    for code in ("raise SystemExit", "import sys\nfor _ in sys.stdin: print('{]', flush=True)", "print(1, flush=True)"):
        kept = keeper(code)
        since = time.monotonic()
        assert kept.wait_until_released() == ""
        assert time.monotonic() - since < 5
        kept.close()


SIZES = st.dictionaries(st.sampled_from("abc"), st.integers(0, 1 << 37))


@given(SIZES, SIZES)
def test_only_memory_above_the_slack_on_a_gpu_that_was_known_before_is_held(
    before: dict[str, int], now: dict[str, int]
) -> None:
    more = any(now[each] - before[each] > SLACK_BYTES for each in now if each in before)
    assert bool(still_held(before, now)) == more


@pytest.mark.parametrize(
    ("had_processes", "unkillable", "expected"),
    [(True, False, ["ended", "waited"]), (False, False, ["ended"]), (True, True, ["ended"])],
)
def test_before_a_trial_the_processes_of_the_gpu_tests_are_ended_and_then_their_memory_is_waited_for(
    had_processes: bool, unkillable: bool, expected: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PREFLIGHT_EVENTS", os.devnull)
    trials = TrialPlan((DEFAULT_CANDIDATE,), StageLimits(30, 10, 10, 15, stretches=True))
    spec = RunSpec(str(tmp_path), Backend("nccl", "", "nccl"), NodePlace(1), trials, time.monotonic() + 60)
    did: list[str] = []

    class Tests:
        broken_pairs: tuple[tuple[int, int], ...] = ()

        def __init__(self) -> None:
            self.unkillable = False

        def end_processes(self) -> bool:
            did.append("ended")
            self.unkillable = unkillable
            return had_processes

    class Keeper:
        def wait_until_released(self) -> str:
            did.append("waited")
            return ""

    conductor: Any = Conductor(Rank(0, 0, spec, Channel(str(tmp_path))))
    conductor._gpu_tests, conductor._keeper = Tests(), Keeper()
    conductor._free_gpus()
    assert did == expected
    assert conductor._known.unkillable is unkillable
