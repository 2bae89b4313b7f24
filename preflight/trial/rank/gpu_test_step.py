"""Rank 0's part in the rounds of GPU tests. The part of every per-rank agent is in gpu_test_process.py."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from preflight.model.codec import encode
from preflight.model.device_job import GpuTestRound, JobKind
from preflight.model.gpu_test import Ending, PairTruth
from preflight.search.gpus.slow_pairs import pair_times, slow_pairs
from preflight.trial.rank.gpu_test_process import GpuTestProcess
from preflight.trial.rank.gpu_test_results import record_of, skipped_group
from preflight.trial.rank.step import Steps

LEAST_S = 1.0
MOST_TIMED_AGAIN = 8  # pairs
BROKEN = (Ending.WRONG, Ending.HANG, Ending.CRASH)


@dataclass(slots=True)
class GpuTestRounds:
    """The rounds of GPU tests on rank 0, which makes all ranks run each round and keeps the results."""

    steps: Steps
    broken_pairs: set[tuple[int, int]] = field(default_factory=set)  # local ranks whose copies don't work
    unkillable: bool = False
    _own: GpuTestProcess = field(default_factory=GpuTestProcess)
    _rounds: int = 0  # that the current processes have run
    _simulated: bool = False
    _timed: list[PairTruth] = field(default_factory=list)

    def take_first(self) -> None:
        """Test the GPUs before NCCL uses them.

        The results of plain copies decide how later NCCL failures are judged.
        """
        spec, now = self.steps.rank.spec, time.monotonic()
        until = now + spec.devices.share_of_time * (spec.deadline_monotonic_s - now)
        self.take(spec.devices.rounds, until)
        self.time_slow_pairs_again(until)

    def take(self, rounds: tuple[GpuTestRound, ...], until: float, repetition: int = 0) -> None:
        """Make all per-rank agents run the rounds, and send each result to the launcher at once.

        Rounds that can't start before `until` (monotonic seconds) are reported as skipped.
        """
        # `repetition` is 0, or the number of the repetition under load.
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
        """Time the slow pairs of GPUs once more, because a single slow measurement does not prove a fault."""
        devices = self.steps.rank.spec.devices
        slow = [each.pair for each in slow_pairs(pair_times(self._timed), devices.pair_limits)][:MOST_TIMED_AGAIN]
        for each in devices.rounds:
            if _pair_timed(each, devices.gpus) in slow and until - time.monotonic() >= LEAST_S:
                self.take((each,), until)

    def end_processes(self) -> bool:
        """Make every per-rank agent end its GPU test process, and return whether any process existed."""
        if not self._rounds:
            return False
        self._rounds = 0
        ends = self.steps.take({"kind": "end_gpu_tests"}, "the end of the GPU tests", self._own.end)
        self.unkillable |= "unkillable" in ends
        return True

    def _by_all(self, round_: GpuTestRound, until: float) -> list[dict[str, Any]]:
        if self._rounds >= (self.steps.rank.spec.devices.rounds_per_process or math.inf):
            self.end_processes()
        self._rounds += 1
        order = {"kind": "gpu_tests", "round": encode(round_), "by_exec": self.steps.by_exec, "until": until}
        return [
            answer
            for by_rank in self.steps.take(order, round_.label, self._own.take_round, until)
            for answer in by_rank
        ]

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
    """Return the pair of GPUs that a round times, or None if the round times no pair.

    The pair has the NVML indices of the GPUs.
    """
    group = round_.groups[0]
    if group.jobs[0].kind is not JobKind.PAIR_SPEED:
        return None
    one, other = sorted(gpus[place] for place in group.places)
    return one, other


def _is_about(round_: GpuTestRound, broken: set[tuple[int, int]]) -> bool:
    """Return whether a round times a pair whose copies are known not to work.

    Such a round would hang again, or time nothing.
    """
    pairs = {group.places for group in round_.groups if group.jobs[0].kind is JobKind.PAIR_SPEED}
    return bool(pairs) and pairs <= broken
