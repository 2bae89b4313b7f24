"""The process in which a per-rank agent tests its GPU and its pairs of GPUs. The process lives through all rounds.

The control channel has these keys, in addition to the keys in supervisor.py:

    step/I         {"kind": "gpu_tests", "round": ..., "by_exec": ..., "until": monotonic seconds}
                   {"kind": "end_gpu_tests"}: a trial comes, which needs GPUs without other contexts
    turn/I/PLACE   the GPU at this place has copied in step I, or its process is gone

No process kills a round for all ranks. A process that hangs is killed at its own time limit, and the other processes
continue. The next round starts a new process for this GPU.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import Any

from preflight.model.codec import decode, encode
from preflight.model.device_job import GpuTestRound, JobGroup
from preflight.model.run_spec import Assignment, StorePlace
from preflight.model.trial import RankEnd
from preflight.search.gpus.gpu_tests import owner_of
from preflight.system.wakeups import OwnTime
from preflight.trial.rank import children
from preflight.trial.rank.gpu_test_child import TURN_S, turn_key
from preflight.trial.rank.step import LISTEN_S, Listener, Order, Rank

STEP_S = 5.0  # for 64 MiB there and back, which take 5 ms; a pair that hangs costs its round this much
STEP_PER_EXPECTED = 3.0
CRASHED = ("signal", "error")


@dataclass(slots=True)
class GpuTestProcess:
    """The process in which this agent tests GPUs.

    The process keeps its CUDA contexts until an error occurs, and sees only the GPUs that this rank tests.
    """

    # If a group of tests crashes the process, a new process repeats the group. Only the GPUs of the group are then
    # visible.

    child: children.Child | None = None
    visible: tuple[int, ...] = ()  # places

    def take_round(self, rank: Rank, index: int, order: Order, _: Listener | None = None) -> int:
        """Run this rank's groups of the round in `order`, and publish the results.

        Return the number of the next step, `index` + 1.
        """
        groups = decode(GpuTestRound, order["round"]).groups
        answers = [self._answer(rank, index, group, order) for group in groups if group.owner == rank.local_rank]
        rank.channel.put(f"end/{index}/{rank.rank}", answers)
        return index + 1

    def end(self, rank: Rank, index: int, _: Order, __: Listener | None = None) -> int:
        """End the test process, and publish how the process ended, or "" if there is no process.

        Return the number of the next step, `index` + 1.
        """
        rank.channel.put(f"end/{index}/{rank.rank}", self._kill(rank))
        return index + 1

    def _answer(self, rank: Rank, index: int, group: JobGroup, order: Order, *, alone: bool = False) -> dict[str, Any]:
        if self.child is not None and not set(group.places) <= set(self.visible):
            self._kill(rank)
        if self.child is None:
            alone = alone or rank.spec.devices.rounds_per_process == 1
            self.visible = tuple(sorted(group.places if alone else _places_of(rank)))
        child = self.child = self.child or _start(rank, index, order["by_exec"], self.visible)
        since = time.monotonic()
        children.ask(child, {"label": str(index), "group": encode(group)})
        late = _watch(rank, child, min(order["until"], rank.spec.deadline_monotonic_s))
        if child.stage == children.ASKED and self._kill(rank, hung=bool(late)) != "unkillable":
            return self._answer(rank, index, group, order)  # an error on a GPU may end the contexts of every process
        _end_turns(rank, index, group)
        if not child.is_done:
            self._kill(rank, hung=bool(late))
            assert child.end is not None  # _kill() ends it
            if child.end.ended in CRASHED and set(self.visible) > set(group.places):
                return self._answer(rank, index, group, order, alone=True)
        return {
            "group": encode(group),
            "end": encode(RankEnd(rank.rank, "done", "done", "") if child.is_done else child.end),
            "events": child.events,
            "late": late,
            "took_s": child.moved_at - since,
        }

    def _kill(self, rank: Rank, hung: bool = False) -> str:
        child, self.child = self.child, None
        if child is None:
            return ""
        children.kill([child], hung, rank.spec.trials.limits)
        assert child.end is not None  # kill() ends every child
        return child.end.ended


def _places_of(rank: Rank) -> set[int]:
    """Return the places of the GPUs that this rank's test process uses.

    These are the rank's own GPU, and the GPUs that the process tests together with the rank's own GPU.
    """
    own, count = rank.local_rank, len(rank.spec.devices.gpus)
    return {own, *(other for other in range(count) if other != own and _is_owner(own, other, count))}


def _is_owner(own: int, other: int, count: int) -> bool:
    return owner_of((min(own, other), max(own, other)), count) == own


def _start(rank: Rank, index: int, by_exec: bool, visible: tuple[int, ...]) -> children.Child:
    spec = rank.spec
    assignment = Assignment(
        label=str(index), rank=rank.rank, local_rank=rank.local_rank, world_size=1, backend=spec.backend,
        gpus=spec.gpus, store=StorePlace(rank.channel.directory), tests_gpus=True,
        visible=visible, limits=spec.trials.limits,
    )  # fmt: skip
    log_path = os.path.join(spec.run_dir, "logs", f"{index}.gpu_tests.rank{rank.rank}.log")
    return children.start(assignment, log_path, by_exec)


def _watch(rank: Rank, child: children.Child, until: float) -> str:
    """Listen until the test process has finished its task, has ended or is late.

    Return why the process is late, or "" if the process is not late.
    """
    own_time = OwnTime()
    while True:
        children.listen([child], LISTEN_S)
        gap_s = own_time.look(LISTEN_S)
        children.forgive([child], gap_s)
        until += gap_s
        if child.is_done or child.end is not None:
            return ""
        if time.monotonic() > until:
            return "time"
        if child.is_silent_for(limit_s(rank, child)):
            return "hang"


def limit_s(rank: Rank, child: children.Child) -> float:
    """Return for how many seconds the test process `child` may report nothing in its present stage."""
    # The limit is long while a CUDA context is created, and short for a copy.
    limits = rank.spec.trials.limits
    if child.stage in ("spawned", "device"):
        return limits.start_s
    if child.stage == "turn":
        return TURN_S + STEP_S
    return (STEP_S if limits.stretches else limits.timed_s) + STEP_PER_EXPECTED * child.expected_s


def _end_turns(rank: Rank, index: int, group: JobGroup) -> None:
    for job in group.jobs:
        if job.in_turn:
            rank.channel.put(turn_key(str(index), job.places[0]), {})
