"""The rounds of tests on the GPUs themselves, as supervisors take them together with the conductor.

Beside what supervisor.py lists, on the control channel:

    step/I             {"kind": "gpu_tests", "round": ..., "by_exec": ..., "until": monotonic seconds}
    turn/LABEL/PLACE   the GPU at this place has copied, or its process is gone

Nobody kills a round for all: a process that hangs is killed at its own limit, the others go on.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from preflight.model.codec import decode, encode
from preflight.model.device_job import GpuTestRound, JobGroup, JobKind
from preflight.model.gpu_test import Ending, PairTruth
from preflight.model.run_spec import Assignment, GroupTimeouts, StorePlace
from preflight.plan.gpus.slow_pairs import pair_times, slow_pairs
from preflight.rank import children
from preflight.rank.gpu_test_child import TURN_S, turn_key
from preflight.rank.gpu_test_results import record_of, skipped_group
from preflight.rank.step import LISTEN_S, Listener, Order, Rank, Steps
from preflight.system.wakeups import OwnTime

STEP_S = 5.0  # for 64 MiB there and back, which take 5 ms; a pair that hangs costs its round this much
STEP_PER_EXPECTED = 3.0
LEAST_S = 1.0
MOST_TIMED_AGAIN = 8  # pairs
BROKEN = (Ending.WRONG, Ending.HANG, Ending.CRASH)


@dataclass(slots=True)
class GpuTests:
    """Rank 0's side: it has all ranks take round after round, and remembers what that says of later ones."""

    steps: Steps
    broken_pairs: set[tuple[int, int]] = field(default_factory=set)  # local ranks whose copies don't work
    unkillable: bool = False
    _simulated: bool = False
    _timed: list[PairTruth] = field(default_factory=list)

    def take(self, rounds: tuple[GpuTestRound, ...], until: float, repetition: int = 0) -> None:
        """Have all supervisors take the rounds until time is up; each result goes to the launcher at once."""
        broken_now: set[tuple[int, int]] = set()
        for each in rounds:
            if self.unkillable or until - time.monotonic() < LEAST_S:
                why = "a process is stuck in the kernel" if self.unkillable else "the time for it was up"
                answers = [skipped_group(group, why) for group in each.groups]
            elif _is_about(each, broken_now):
                answers = [skipped_group(group, "its copies hang, crash or don't arrive") for group in each.groups]
            else:
                answers = self._by_all(each, until)
                if not self.steps.by_exec and any(answer["end"]["ended"] == "fork" for answer in answers):
                    self.steps.by_exec = True  # CUDA was touched before the fork, or does not survive it
                    answers = self._by_all(each, until)
            for answer in answers:
                self._note(answer, repetition, broken_now)
        self.broken_pairs |= broken_now

    def time_slow_pairs_again(self, until: float) -> None:
        """Time those pairs once more that were slow: what was slow once accuses nobody."""
        devices = self.steps.rank.spec.devices
        slow = [each.pair for each in slow_pairs(pair_times(self._timed), devices.pair_limits)][:MOST_TIMED_AGAIN]
        for each in devices.rounds:
            if _pair_timed(each, devices.gpus) in slow and until - time.monotonic() >= LEAST_S:
                self.take((each,), until)

    def _by_all(self, round_: GpuTestRound, until: float) -> list[dict[str, Any]]:
        order = {"kind": "gpu_tests", "round": encode(round_), "by_exec": self.steps.by_exec, "until": until}
        return [answer for by_rank in self.steps.take(order, round_.label, take_round, until) for answer in by_rank]

    def _note(self, answer: dict[str, Any], repetition: int, broken: set[tuple[int, int]]) -> None:
        self.unkillable |= answer["end"]["ended"] == "unkillable"
        if any(event.get("simulated") for event in answer["events"]) and not self._simulated:
            self._simulated = True
            self.steps.report({"event": "simulated"})
        gpus = self.steps.rank.spec.devices.gpus
        result = record_of(answer, gpus, repetition)
        if isinstance(result, PairTruth):
            if result.end in BROKEN:
                broken.add((gpus.index(result.a), gpus.index(result.b)))
            self._timed.append(result)
            self.steps.report({"event": "tested", "pair": encode(result)})
        else:
            self.steps.report({"event": "tested", "gpu": encode(result)})


def _pair_timed(round_: GpuTestRound, gpus: Sequence[int]) -> tuple[int, int] | None:
    """Return the pair, as NVML numbers it, that a round times; None for a round that does anything else."""
    group = round_.groups[0]
    if group.jobs[0].kind is not JobKind.PAIR_SPEED:
        return None
    one, other = sorted(gpus[place] for place in group.places)
    return one, other


def _is_about(round_: GpuTestRound, broken: set[tuple[int, int]]) -> bool:
    """Tell whether a round times a pair whose copies are known not to work: it would hang again, or time nothing."""
    pairs = {group.places for group in round_.groups if group.jobs[0].kind is JobKind.PAIR_SPEED}
    return bool(pairs) and pairs <= broken


def take_round(rank: Rank, index: int, order: Order, _: Listener | None = None) -> int:
    """Run the processes of a round that this rank's GPU comes first in, and publish how they ended."""
    round_ = decode(GpuTestRound, order["round"])
    mine = [group for group in round_.groups if group.places[0] == rank.local_rank]
    running = [(group, _start(rank, index, group, order["by_exec"])) for group in mine]
    since = time.monotonic()
    late = _watch(rank, index, running, min(order["until"], rank.spec.deadline_monotonic_s))
    children.kill([child for _, child in running], hung=bool(late), limits=rank.spec.trials.limits)
    _end_turns(rank, index, running)
    answers = [_answer(group, child, late.get(child.pid, ""), since) for group, child in running]
    rank.channel.put(f"end/{index}/{rank.rank}", answers)
    return index + 1


def _start(rank: Rank, index: int, group: JobGroup, by_exec: bool) -> children.Child:
    log_path = os.path.join(rank.spec.run_dir, "logs", f"{index}.gpu_tests.rank{rank.rank}.log")
    return children.start(_assignment(rank, index, group), log_path, by_exec)


def _assignment(rank: Rank, index: int, group: JobGroup) -> Assignment:
    spec, limits = rank.spec, rank.spec.trials.limits
    return Assignment(
        label=str(index), rank=rank.rank, local_rank=rank.local_rank, world_size=1, backend=spec.backend,
        gpus=spec.gpus, store=StorePlace(rank.channel.directory), jobs=group.jobs,
        timeouts=GroupTimeouts(limits.init_s, limits.first_s, limits.timed_s, stretches=False),
    )  # fmt: skip


def _watch(rank: Rank, index: int, running: list[tuple[JobGroup, children.Child]], until: float) -> dict[int, str]:
    """Listen until every process has ended or is late; return by pid why those are to be killed that are late."""
    late: dict[int, str] = {}
    own_time = OwnTime()
    all_children = [child for _, child in running]
    while True:
        left = [child for child in all_children if child.end is None and child.pid not in late]
        if not left:
            return late
        children.listen(left, LISTEN_S)
        gap_s = own_time.look(LISTEN_S)
        children.forgive(left, gap_s)
        until += gap_s
        for child in left:
            if child.end is None and time.monotonic() > until:
                late[child.pid] = "time"
            elif child.end is None and child.is_silent_for(limit_s(rank, child)):
                late[child.pid] = "hang"
        _end_turns(rank, index, [each for each in running if each[1].end is not None or each[1].pid in late])


def limit_s(rank: Rank, child: children.Child) -> float:
    """Return how long a process may stay silent where it is: a context may take long, a copy may not."""
    limits = rank.spec.trials.limits
    if child.stage in ("spawned", "device"):
        return limits.start_s
    if child.stage == "turn":
        return TURN_S + STEP_S
    return (STEP_S if limits.stretches else limits.timed_s) + STEP_PER_EXPECTED * child.expected_s


def _end_turns(rank: Rank, index: int, ended: list[tuple[JobGroup, children.Child]]) -> None:
    for group, _ in ended:
        for job in group.jobs:
            if job.in_turn:
                rank.channel.put(turn_key(str(index), job.places[0]), {})


def _answer(group: JobGroup, child: children.Child, late: str, since: float) -> dict[str, Any]:
    assert child.end is not None  # kill() ends every child
    return {
        "group": encode(group),
        "end": encode(child.end),
        "events": child.events,
        "late": late,
        "took_s": child.moved_at - since,
    }
