"""Real supervisors take the rounds on simulated GPUs that misbehave; what hangs or dies stops nobody else."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from preflight.model.codec import encode
from preflight.model.device_job import DevicePlan
from preflight.model.facts import known
from preflight.model.gpu_test import Arrived, Direction, Ending, PairLimit, PairTruth, UnderLoad
from preflight.model.profile import Profile
from preflight.model.run_spec import Backend, NodePlace, RunSpec, StageLimits, StorePlace, TrialPlan
from preflight.model.trial import Outcome
from preflight.search.gpus.gpu_tests import device_plan
from preflight.system import processes
from preflight.trial.launch_result import LaunchResult
from preflight.trial.rank import children
from preflight.trial.rank.channel import Channel
from preflight.trial.rank.gpu_test_child import do_groups
from preflight.trial.rank.gpu_test_process import GpuTestProcess
from preflight.trial.rank.step import Rank
from tests.node_facts import gpu_node
from tests.simgpu import simgpu
from tests.simgpu.rounds import LIMITS, MODULE, run, small
from tests.trial.rank.test_children import assignment

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240), pytest.mark.xdist_group("gpu_test_step")]
# By place; NVML numbers these GPUs 6 to 9.
FAULTS = (
    "hang:from=0,to=1,by=sm; lost:from=0,to=2,above=4096; scramble:from=3,to=0,by=sm; crash:from=1,to=2; "
    "lost:from=1,to=3,at_once=1; deny:from=2,to=3; wrong:gpu=0; unsteady:gpu=1; hot:gpu=2"
)


def planned(gpus: tuple[int, ...], profile: Profile, burn_s: float | None = None) -> DevicePlan:
    """Return the plan for GPUs that NVML numbers so."""
    node = gpu_node(len(gpus))
    numbered = tuple(replace(gpu, nvml_index=i) for gpu, i in zip(known(node.gpus), gpus, strict=True))
    plan = device_plan(profile, numbered, node, burn_s)
    return replace(plan, rounds=small(plan.rounds), burn_rounds=small(plan.burn_rounds), share_of_time=0.8)


@pytest.fixture(scope="module")
def healthy() -> LaunchResult:
    return run(planned((6, 7, 8), Profile.BURN, 5.0), 3, "", deadline_s=120)


@pytest.fixture(scope="module")
def faulty() -> LaunchResult:
    return run(planned((6, 7, 8, 9), Profile.STANDARD), 4, FAULTS, 120, replace(LIMITS, timed_s=2.0, stretches=False))


def data(launched: LaunchResult) -> dict[tuple[int, int], PairTruth]:
    """Return the tests of the pairs' data before the trials."""
    return {(p.a, p.b): p for p in launched.pairs if not p.repetition and not p.speeds and p.problem != NOT_TIMED}


NOT_TIMED = "its copies hang, crash or don't arrive"


def test_healthy_gpus_pass_every_test_and_the_trial_follows(healthy: LaunchResult) -> None:
    assert (healthy.problem, healthy.simulated) == ("", True)
    assert set(data(healthy)) == {(6, 7), (6, 8), (7, 8)}
    assert all(pair.end is Ending.OK for pair in data(healthy).values())
    assert [len(pair.copies) for pair in data(healthy).values()] == [18, 18, 18]
    assert all(pair.cuda is True for pair in data(healthy).values())
    assert [len(pair.speeds) for pair in healthy.pairs if pair.speeds] == [6, 6, 6]
    first = [test for test in healthy.gpus if test.repetition == 0]
    assert [(test.gpu, test.end, len(test.gemms), len(test.copies)) for test in first] == [
        (gpu, Ending.OK, 2, 2) for gpu in (6, 7, 8)
    ]
    assert len({test.gemms[0].digest for test in healthy.gpus if test.gemms}) == 1
    assert all(isinstance(test.computing, UnderLoad) for test in first)
    assert healthy.trials[0].outcome is Outcome.OK


def test_burn_repeats_the_tests_and_the_default_under_load(healthy: LaunchResult) -> None:
    assert max(test.repetition for test in healthy.gpus) >= 1
    assert [trial.candidate for trial in healthy.trials][:2] == ["default", "default under load, 1"]
    assert all(trial.outcome is Outcome.OK for trial in healthy.trials)
    assert {pair.end for pair in healthy.pairs if pair.repetition == 1} == {Ending.OK}


def test_a_pair_that_hangs_is_killed_at_its_limit_and_keeps_what_was_seen_before(faulty: LaunchResult) -> None:
    pair = data(faulty)[6, 7]
    assert pair.end is Ending.HANG
    assert "copy 10/18 (4096 bytes by sm, a_to_b)" in pair.problem
    assert [copy.arrived for copy in pair.copies] == [Arrived.RIGHT] * 9


def test_lost_scrambled_one_way_and_large_only_faults_are_told_apart(faulty: LaunchResult) -> None:
    sizes = "(a to b, both; 8 KiB, 512 KiB)"
    assert data(faulty)[6, 8].problem == f"never written by copy engine {sizes}; never written by sm {sizes}"
    assert data(faulty)[6, 9].problem == "scrambled by sm (b to a, both; 4 KiB, 8 KiB, 512 KiB)"


def test_a_fault_that_only_load_brings_out_is_found(faulty: LaunchResult) -> None:
    wrong = [copy for copy in data(faulty)[7, 9].copies if copy.arrived is not Arrived.RIGHT]
    assert {copy.direction for copy in wrong} == {Direction.BOTH}
    assert data(faulty)[7, 9].end is Ending.WRONG


def test_a_crash_is_told_with_its_signal_and_a_refusal_of_peer_access_is_no_fault(faulty: LaunchResult) -> None:
    assert data(faulty)[7, 8].end is Ending.CRASH
    assert "SIGSEGV" in data(faulty)[7, 8].problem
    sound = [pair for pair in faulty.pairs if (pair.a, pair.b) == (8, 9)]
    assert [pair.end for pair in sound] == [Ending.OK, Ending.OK]
    assert sound[0].cuda is False


def test_only_pairs_whose_copies_arrive_are_timed(faulty: LaunchResult) -> None:
    assert [(pair.a, pair.b) for pair in faulty.pairs if pair.speeds] == [(8, 9)]
    assert sum(pair.problem == NOT_TIMED for pair in faulty.pairs) == 5


def test_wrong_and_unsteady_products_are_found_on_their_gpu_and_heat_is_seen(faulty: LaunchResult) -> None:
    tests = {test.gpu: test for test in faulty.gpus}
    assert "1 wrong elements of a float32 GEMM" in tests[6].problem
    assert "GEMMs differ in their bits" in tests[7].problem
    assert (tests[8].problem, tests[9].problem) == ("", "")
    assert isinstance(tests[8].computing, UnderLoad)
    assert tests[8].computing.throttle_reasons == ("hw_thermal_slowdown",)


def test_the_trials_run_after_all_that(faulty: LaunchResult) -> None:
    assert [trial.outcome for trial in faulty.trials] == [Outcome.OK]


def test_when_the_time_is_up_the_rest_is_skipped_and_the_trial_still_runs() -> None:
    patient = StageLimits(30, 10, 10, 60, stretches=False)
    plan = replace(planned((6, 7), Profile.QUICK), share_of_time=0.3)
    launched = run(plan, 2, "hang", deadline_s=40.0, limits=patient)
    assert {pair.end for pair in launched.pairs} == {Ending.SKIPPED}
    assert all("the time for it was up" in pair.problem for pair in launched.pairs)
    assert [trial.outcome for trial in launched.trials] == [Outcome.OK]


def reports(rules: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, module: object = simgpu) -> str:
    monkeypatch.setenv("SIMGPU", rules)
    (tmp_path / "control").mkdir()
    plan = planned((6, 7), Profile.QUICK)
    reported: list[object] = []
    asked = [{"label": "0", "group": encode(plan.rounds[0].groups[0])}]
    do_groups(assignment(store=StorePlace(str(tmp_path / "control"))), module, reported.append, asked)
    return json.dumps(reported)


def test_memory_that_is_gone_is_inconclusive(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert '{"inconclusive": "CUDA out of memory on 1"}' in reports("oom:gpu=1", monkeypatch, tmp_path)


def test_a_stand_in_without_devices_tests_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class Stand:
        SIMULATED = True

    assert "brings no DEVICES" in reports("", monkeypatch, tmp_path, Stand())


def test_slow_pairs_are_timed_again_and_no_others_and_no_gpu_is_opened_twice_by_a_process(tmp_path: Path) -> None:
    plan = planned((6, 7, 8), Profile.STANDARD)
    limits = tuple(PairLimit(a, b, "NV4", 24.0) for a, b in ((6, 7), (6, 8), (7, 8)))
    diary = tmp_path / "diary"
    launched = run(replace(plan, pair_limits=limits), 3, "slow:gpu=0,factor=10", deadline_s=120, diary=diary)
    timed = [(pair.a, pair.b) for pair in launched.pairs if pair.speeds]
    assert timed[:3] == [(6, 7), (6, 8), (7, 8)]
    assert sorted(timed[3:]) == [(6, 7), (6, 8)]
    assert sorted(opened(diary)) == [(0, 1), (0, 2), (1, 2)]
    assert [with_gpus for pid, with_gpus in started(diary).items() if pid not in pids(diary)] == [0, 0, 0], "the trial"


def pids(diary: Path) -> list[int]:
    """Return the processes that have opened GPUs."""
    lines = map(str.split, diary.read_text().splitlines())
    return list(dict.fromkeys(int(pid) for what, pid, _ in lines if what == "open"))


def opened(diary: Path) -> list[tuple[int, ...]]:
    """Return the GPUs that each process opened, every time that it did."""
    lines = [line.split() for line in diary.read_text().splitlines()]
    return [tuple(int(gpu) for what, pid, gpu in lines if (what, int(pid)) == ("open", each)) for each in pids(diary)]


def started(diary: Path) -> dict[int, int]:
    """Return for each process how many had a GPU open when it began."""
    lines = map(str.split, diary.read_text().splitlines())
    return {int(pid): int(count) for what, pid, count in lines if what == "start"}


def test_a_hang_costs_its_process_and_the_next_round_of_that_gpu_has_a_new_one(tmp_path: Path) -> None:
    plan, limits = planned((6, 7, 8, 9), Profile.QUICK), replace(LIMITS, timed_s=2.0, stretches=False)
    second = [(group.places, group.owner) for group in plan.rounds[1].groups]
    assert second == [((0, 3), 3), ((1, 2), 1)]
    launched = run(plan, 4, "hang:from=1,to=2,by=sm", 120, limits, tmp_path / "diary")
    assert [pair for pair, each in data(launched).items() if each.end is not Ending.OK] == [(7, 8)]
    assert data(launched)[7, 8].end is Ending.HANG
    assert [test.end for test in launched.gpus] == [Ending.OK] * 4
    assert sorted(opened(tmp_path / "diary")) == [(0, 1, 2), (0, 3), (1, 2), (1, 3), (2, 3)]
    assert [trial.outcome for trial in launched.trials] == [Outcome.OK]


def test_when_a_supervisor_dies_no_process_stays_on_a_gpu_not_even_one_that_has_nothing_to_do(tmp_path: Path) -> None:
    launched = run(planned((6, 7, 8, 9), Profile.QUICK), 4, "orphan:from=0,to=2", diary=tmp_path / "diary")
    assert "preflight's process of rank 0 died by SIGKILL" in launched.problem
    assert {(pair.a, pair.b) for pair in launched.pairs} == {(6, 7), (8, 9), (6, 9), (7, 8)}, "two rounds"
    assert len(pids(tmp_path / "diary")) == 4
    assert [pid for pid in pids(tmp_path / "diary") if processes.state(pid) not in processes.GONE] == []


def test_gpus_that_let_one_process_in_are_tested_by_one_at_a_time(tmp_path: Path) -> None:
    launched = run(replace(planned((6, 7, 8), Profile.QUICK), rounds_per_process=1), 3, "", diary=tmp_path / "diary")
    assert sorted(opened(tmp_path / "diary")) == [(0,), (0, 1), (0, 2), (1,), (1, 2), (2,)]
    assert [each.end for each in launched.pairs] == [test.end for test in launched.gpus] == [Ending.OK] * 3
    begun = started(tmp_path / "diary")
    assert [begun[pid] for pid in pids(tmp_path / "diary")][:3] == [0, 0, 0]


def test_where_cuda_fails_in_a_forked_process_it_is_started_by_exec(tmp_path: Path) -> None:
    launched = run(planned((6, 7), Profile.QUICK), 2, "unforkable", 120, diary=tmp_path / "diary")
    assert [*(pair.end for pair in launched.pairs), *(test.end for test in launched.gpus)] == [Ending.OK] * 3
    assert sorted(opened(tmp_path / "diary")) == [(0,), (0, 1), (1,)], "the first was forked"
    assert [trial.outcome for trial in launched.trials] == [Outcome.OK]


def test_a_process_that_died_while_it_had_nothing_to_do_accuses_nobody(tmp_path: Path) -> None:
    for folder in ("control", "logs"):
        (tmp_path / folder).mkdir()
    plan = planned((6, 7), Profile.QUICK)
    spec = RunSpec(
        str(tmp_path), Backend("gloo", MODULE, "gloo"), NodePlace(2), TrialPlan((), LIMITS), time.monotonic() + 60
    )
    rank, process = Rank(0, 0, spec, Channel(str(tmp_path / "control"))), GpuTestProcess()
    order = {"round": encode(plan.rounds[0]), "by_exec": False, "until": time.monotonic() + 60}
    assert process.take_round(rank, 0, order) == 1
    first = process.child
    assert first is not None and first.end is None
    die(first)
    process.take_round(rank, 1, order)
    assert [rank.channel.get(f"end/{step}/0")[0]["end"]["ended"] for step in (0, 1)] == ["done", "done"]
    assert process.child is not None and process.child.pid != first.pid
    second = process.child
    process.end(rank, 2, {})
    assert rank.channel.get("end/2/0") == "killed"
    assert process.child is None and second.is_reaped


def die(child: children.Child) -> None:
    os.kill(child.pid, signal.SIGKILL)
    while processes.state(child.pid) not in processes.GONE:
        time.sleep(0.01)


def test_a_context_that_no_longer_works_ends_the_process_before_the_next_test_begins(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    class Dying(simgpu.SimDevices):
        settled = 0

        def settle(self, places: Sequence[int]) -> None:
            self.settled += 1
            if self.settled == 3:  # before the first group, after its job, before the second
                raise RuntimeError("CUDA error: an uncorrectable ECC error was found")

    monkeypatch.setenv("SIMGPU", "")
    reported: list[dict[str, object]] = []
    asked = [{"label": str(i), "group": encode(planned((6, 7), Profile.QUICK).rounds[0].groups[0])} for i in range(2)]
    with pytest.raises(RuntimeError, match="ECC"):
        do_groups(assignment(store=StorePlace(str(tmp_path))), SimpleNamespace(DEVICES=Dying()), reported.append, asked)
    assert reported[-1] == {"stage": "done"}
    assert reported.count({"stage": "done"}) == 1
    assert reported.count({"stage": "device"}) == 2
