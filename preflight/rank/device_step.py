"""The rounds of tests on the GPUs themselves, as supervisors take them together with the conductor.

Beside what supervisor.py lists, on the control channel:

    step/I             {"kind": "devices", "round": ..., "by_exec": ..., "until": monotonic seconds}
    turn/LABEL/PLACE   the GPU at this place has copied, or its process is gone

Nobody kills a round for all: a process that hangs is killed at its own limit, the others go on.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from preflight.model.codec import decode, encode
from preflight.model.device_job import JobGroup, JobKind, Round
from preflight.model.gpu_test import Ending, GpuTest, PairTruth
from preflight.model.run import Assignment
from preflight.rank import children
from preflight.rank.answers import collect
from preflight.rank.channel import Channel
from preflight.rank.device_job import TURN_S, turn_key
from preflight.rank.device_results import record_of, skipped_group

if TYPE_CHECKING:
    from preflight.rank.supervisor import Rank

LISTEN_S = 0.02
STEP_S = 5.0  # for 64 MiB there and back, which take 5 ms; a pair that hangs costs its round this much
STEP_PER_EXPECTED = 3.0
ANSWER_S = 10.0
LEAST_S = 1.0
BROKEN = (Ending.WRONG, Ending.HANG, Ending.CRASH)

Tell = Callable[[dict[str, Any]], None]


@dataclass(slots=True)
class Tested:
    """What the rounds gave, and the number of the next step."""

    index: int
    by_exec: bool = False
    pairs: list[PairTruth] = field(default_factory=list)
    gpus: list[GpuTest] = field(default_factory=list)
    unkillable: bool = False
    simulated: bool = False

    def broken_pairs(self, gpus: Sequence[int]) -> tuple[tuple[int, int], ...]:
        """Return the local ranks of pairs whose copies hang, crash or don't arrive; `gpus` are NVML's by place."""
        broken = {(pair.a, pair.b) for pair in self.pairs if pair.end in BROKEN}
        return tuple(sorted((gpus.index(a), gpus.index(b)) for a, b in broken))


def conduct_rounds(
    rank: Rank, tell: Tell, gathered: Tested, rounds: tuple[Round, ...], until: float, repetition: int = 0
) -> None:
    """Have all supervisors take the rounds until time is up; each result goes to the launcher at once."""
    for each in rounds:
        if gathered.unkillable or until - time.monotonic() < LEAST_S:
            why = "a process is stuck in the kernel" if gathered.unkillable else "the time for it was up"
            answers = [[skipped_group(group, why) for group in each.groups]]
        elif _is_about_broken(rank, each, gathered):
            answers = [[skipped_group(group, "its copies hang, crash or don't arrive") for group in each.groups]]
        else:
            tell({"event": "step", "label": each.label})
            answers = _taken_by_all(rank, gathered, each, until)
            if not gathered.by_exec and any(a["end"]["ended"] == "fork" for answer in answers for a in answer):
                gathered.by_exec = True  # CUDA was touched before the fork, or does not survive it
                answers = _taken_by_all(rank, gathered, each, until)
        _note(rank, tell, gathered, [answer for by_rank in answers for answer in by_rank], repetition)


def _is_about_broken(rank: Rank, round_: Round, gathered: Tested) -> bool:
    """Tell whether a round times a pair whose copies are known not to work: it would hang again, or time nothing."""
    pairs = {group.places for group in round_.groups if group.jobs[0].kind is JobKind.PAIR_SPEED}
    return bool(pairs) and pairs <= set(gathered.broken_pairs(rank.spec.devices.gpus))


def _taken_by_all(rank: Rank, gathered: Tested, round_: Round, until: float) -> list[list[dict[str, Any]]]:
    index = gathered.index
    gathered.index += 1
    order = {"kind": "devices", "round": encode(round_), "by_exec": gathered.by_exec, "until": until}
    rank.channel.put(f"step/{index}", order)
    take_round(rank, index, order)
    spec = rank.spec
    return collect(
        rank.channel, index, spec.world_size, spec.node_sizes, lambda: max(until, time.monotonic()) + ANSWER_S
    )


def _note(rank: Rank, tell: Tell, gathered: Tested, answers: list[dict[str, Any]], repetition: int) -> None:
    for answer in answers:
        gathered.unkillable |= answer["end"]["ended"] == "unkillable"
        if any(event.get("simulated") for event in answer["events"]) and not gathered.simulated:
            gathered.simulated = True
            tell({"event": "simulated"})
        result = record_of(answer, rank.spec.devices.gpus, repetition)
        if isinstance(result, PairTruth):
            gathered.pairs.append(result)
            tell({"event": "tested", "pair": encode(result)})
        else:
            gathered.gpus.append(result)
            tell({"event": "tested", "gpu": encode(result)})


def take_round(rank: Rank, index: int, order: dict[str, Any]) -> None:
    """Run the processes of a round that this rank's GPU comes first in, and publish how they ended."""
    round_ = decode(Round, order["round"])
    mine = [group for group in round_.groups if group.places[0] == rank.local_rank]
    running = [(group, _start(rank, index, group, order["by_exec"])) for group in mine]
    since = time.monotonic()
    late = _watch(rank, index, running, min(order["until"], rank.spec.deadline_monotonic_s))
    children.kill([child for _, child in running], hung=bool(late), limits=rank.spec.limits)
    _end_turns(rank, index, running)
    answers = [_answer(group, child, late.get(child.pid, ""), since) for group, child in running]
    rank.channel.put(f"end/{index}/{rank.rank}", answers)


def _start(rank: Rank, index: int, group: JobGroup, by_exec: bool) -> children.Child:
    log_path = os.path.join(rank.spec.run_dir, "logs", f"{index}.devices.rank{rank.rank}.log")
    return children.start(_assignment(rank, index, group), log_path, by_exec)


def _assignment(rank: Rank, index: int, group: JobGroup) -> Assignment:
    spec = rank.spec
    return Assignment(
        label=str(index), rank=rank.rank, local_rank=rank.local_rank, world_size=1, backend=spec.backend,
        backend_module=spec.backend_module, dialect=spec.dialect, set_env=(), unset_env=(),
        gpu_uuids=spec.gpu_uuids, gpu_bdfs=spec.gpu_bdfs, store_path=rank.channel.directory,
        init_timeout_s=spec.limits.init_s, timed_timeout_s=spec.limits.timed_s, timeout_stretches=False,
        measures=(), turns=1, side=0, sides=1, jobs=group.jobs,
    )  # fmt: skip


def _watch(rank: Rank, index: int, running: list[tuple[JobGroup, children.Child]], until: float) -> dict[int, str]:
    """Listen until every process has ended or is late; return by pid why those are to be killed that are late."""
    late: dict[int, str] = {}
    all_children = [child for _, child in running]
    while True:
        left = [child for child in all_children if child.end is None and child.pid not in late]
        if not left:
            return late
        children.listen(left, LISTEN_S)
        for child in left:
            if child.end is None and time.monotonic() > until:
                late[child.pid] = "time"
            elif child.end is None and child.silent_s() > limit_s(rank, child):
                late[child.pid] = "hang"
        _end_turns(rank, index, [each for each in running if each[1].end is not None or each[1].pid in late])


def limit_s(rank: Rank, child: children.Child) -> float:
    """Return how long a process may stay silent where it is: a context may take long, a copy may not."""
    limits = rank.spec.limits
    if child.stage in ("spawned", "device"):
        return limits.start_s
    if child.stage == "turn":
        return TURN_S + STEP_S
    return (STEP_S if limits.stretches else limits.timed_s) + STEP_PER_EXPECTED * child.expected_s


def _end_turns(rank: Rank, index: int, ended: list[tuple[JobGroup, children.Child]]) -> None:
    channel: Channel = rank.channel
    for group, _ in ended:
        for job in group.jobs:
            if job.in_turn:
                channel.put(turn_key(str(index), job.places[0]), {})


def _answer(group: JobGroup, child: children.Child, late: str, since: float) -> dict[str, Any]:
    assert child.end is not None  # kill() ends every child
    return {
        "group": encode(group),
        "end": encode(child.end),
        "events": child.events,
        "late": late,
        "took_s": child.moved_at - since,
    }
