"""Steps that all ranks run together, such as a test run or a comparison, and rank 0's part in a step."""
# A step is a test run, or a comparison of two configurations. Other steps are rounds of GPU tests (gpu_test_step.py)
# and test runs of small groups (group_step.py). FirstLimit is the time limit of the first collective, in which NCCL
# connects.

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from preflight.model.bound import JUDGMENT, Bound
from preflight.model.codec import decode, encode
from preflight.model.run_spec import (
    Assignment,
    Measure,
    RunSpec,
    StageLimits,
    StorePlace,
)
from preflight.model.transport import texts_of
from preflight.model.trial import DEFAULT, Candidate, Outcome, TrialResult
from preflight.search.settings.environment import trial_environment
from preflight.search.settings.infiniband import AFTER_GIVING_UP_S
from preflight.system.kernel_queries import live_machine
from preflight.system.shm_segments import remove_segments
from preflight.system.wakeups import OwnTime
from preflight.trial.rank import children
from preflight.trial.rank.channel import Channel
from preflight.trial.rank.outcome import PORT_ERRORS, RankAnswer
from preflight.trial.rank.port_errors import port_errors_between, port_errors_now
from preflight.trial.rank.transport import carried, gives_up, last_words, left_in_shm

LISTEN_S = 0.02
OWN_END_GRACE_S = 0.75  # a child that another rank's death is about to end may still say so itself
ANSWER_S = children.UNKILLABLE_AFTER_S + 5.0  # a process that does not die is reported in time
PAUSED_S = "paused_s"  # in a child's outcome: how long its supervisor itself stood still

Order = dict[str, Any]  # {"kind": ...} and the fields of a step, as the conductor publishes it
Listener = Callable[[children.Child], None]
LEAST_S = Bound(
    15.0, "s as the least time limit of a trial's first collective, after another trial worked",
    "ranks on a busy machine take some seconds to start and to connect",
    JUDGMENT,
    "too low: a slow start is counted as a hang; too high: the search has time for fewer trials",
)  # fmt: skip
TIMES_WHAT_WORKED = Bound(
    5, "times the slowest first collective of the trials that worked",
    "settings that prevent a fault may be several times slower",
    JUDGMENT,
    "too low: a slow workaround is counted as a hang; too high: the search has time for fewer trials",
)  # fmt: skip
TIMES_AN_ERROR = 1.5  # an error that came late must not be cut off as a hang when it is repeated
KNOWN_BROKEN_S = 12.0  # peer copies of a pair of GPUs hung or went wrong already
LOOK_AT_LOG_S = 1.0


@dataclass(frozen=True, slots=True)
class Rank:
    """The rank that this process supervises, the run's specification, and the channel to the other per-rank agents."""

    rank: int
    local_rank: int
    spec: RunSpec
    channel: Channel

    def why_killed(self, index: int) -> str:
        """Return why a rank's agent ended step `index` for all ranks, or "" if no agent ended the step."""
        key = f"kill/{index}"
        return str(self.channel.get(key)["why"]) if self.channel.has(key) else ""


# Runs this rank's part of a step and returns the number of the next one.
TakeStep = Callable[[Rank, int, Order, "Listener | None"], int]


@dataclass(frozen=True, slots=True)
class Step:
    """One test run, or one comparison of two configurations, in which all ranks take part at the same time."""

    label: str
    candidates: tuple[Candidate, ...]  # in full: other ranks do not know those that the search makes
    by_exec: bool  # start the children by exec: CUDA failed in a forked one
    measures: tuple[Measure, ...] = ()  # of a trial; a comparison has those of the plan
    first_s: float = 0.0  # limit of the first collective; 0: that of the plan

    @property
    def is_duel(self) -> bool:
        return len(self.candidates) > 1


class Steps:
    """Rank 0's part in every step: publish the step, take part in it, and collect the answers of all ranks."""

    def __init__(self, rank: Rank) -> None:
        self.rank = rank
        self.index = 0  # of the next step
        self.by_exec = False
        self._events = os.open(os.environ["PREFLIGHT_EVENTS"], os.O_WRONLY)
        self._reported_stage = ""

    def take(self, order: Order, label: str, take: TakeStep, until: float = 0.0) -> list[Any]:
        """Publish `order` as the next step, call `take` for this rank's part, and return the answers by rank.

        Each rank has ANSWER_S seconds to answer, from now or from `until` (monotonic seconds), whichever is later.
        """
        # `label` is the step's name in the progress line.
        index, spec = self.index, self.rank.spec
        self.rank.channel.put(f"step/{index}", order)
        self.report({"event": "step", "label": label})
        self.index = take(self.rank, index, order, self._report_stage)
        place = spec.place
        return self.rank.channel.collect(
            index, place.world_size, place.node_sizes, lambda: max(until, time.monotonic()) + ANSWER_S
        )

    def stop(self) -> None:
        """Publish the order that ends the present phase of the run for every rank."""
        self.rank.channel.put(f"step/{self.index}", {"kind": "stop"})

    def report(self, event: dict[str, Any]) -> None:
        """Send an event to the launcher."""
        data = memoryview(json.dumps(event).encode() + b"\n")
        while data:
            data = data[os.write(self._events, data) :]

    def _report_stage(self, child: children.Child) -> None:
        stage = f"{child.assignment.label}: {child.stage}"
        if stage != self._reported_stage:
            self._reported_stage = stage
            self.report({"event": "stage", "stage": child.stage})


def take_step(rank: Rank, index: int, order: Order, on_stage: Listener | None = None) -> int:
    """Run this rank's child processes of step `index`, publish how they ended, and return the next step's number."""
    # `on_stage` is called repeatedly with the first child while the children run.
    step = decode(Step, order)
    rank = replace(rank, spec=_with_limit(rank.spec, step.first_s)) if step.first_s else rank
    counts = rank.local_rank == 0 and rank.spec.uses_adapters
    before = port_errors_now(live_machine()) if counts else {}
    assignments = [assign(rank, index, step, side) for side in range(len(step.candidates))]
    running = [start(rank, each, step.by_exec) for each in assignments]
    ends = run_to_end(rank, index, running, on_stage)
    grown = port_errors_between(before, port_errors_now(live_machine())) if before else []
    if grown:
        ends = [end | {PORT_ERRORS: grown} for end in ends]
    rank.channel.put(f"end/{index}/{rank.rank}", ends)
    return index + 1


def _with_limit(spec: RunSpec, first_s: float) -> RunSpec:
    return replace(spec, trials=replace(spec.trials, limits=replace(spec.trials.limits, first_s=first_s)))


def start(rank: Rank, assignment: Assignment, by_exec: bool) -> children.Child:
    """Start and return the child process of a test run, which has its own log.

    If `by_exec` is true, the child starts without a fork.
    """
    log_path = os.path.join(rank.spec.run_dir, "logs", f"{assignment.label}.rank{rank.rank}.log")
    return children.start(assignment, log_path, by_exec)


def run_to_end(
    rank: Rank, index: int, running: list[children.Child], on_stage: Listener | None
) -> list[dict[str, Any]]:
    """Read what the children in `running` report until they end or must be killed, and return how each child ended."""
    # `on_stage` is called repeatedly with the first child while the children run.
    own_time = OwnTime()
    hung = _watch(rank, index, running, on_stage, own_time)
    own_time.look()  # a pause just before the kill is one too
    children.kill(running, hung, rank.spec.trials.limits)
    for child in running:
        remove_segments(left_in_shm(_debug_file(child), child.pid))
    return [_outcome(child) | {PAUSED_S: own_time.lost_s} for child in running]


def _debug_file(child: children.Child) -> str:
    """Return the path pattern of the NCCL log of `child`, or "" if there is no pattern."""
    return dict(child.assignment.set_env).get("NCCL_DEBUG_FILE", "")


def assign(rank: Rank, index: int, step: Step, side: int = 0, also: tuple[tuple[str, str], ...] = ()) -> Assignment:
    """Return the input of this rank's child process in step `index`.

    `side` is the index of the child's configuration in `step.candidates`. `also` overrides the configuration's
    variables.
    """
    spec = rank.spec
    place = spec.place
    candidate = spec.trials.on_this_node(step.candidates[side])
    candidate = replace(candidate, env=(*candidate.env, *also))
    label = f"{index}-{side}" if step.is_duel else f"{index}"
    debug_file = os.path.join(spec.run_dir, "nccl", f"{label}.%h.%p.log")
    set_env, unset_env = trial_environment(candidate, spec.inherited, spec.backend.dialect, debug_file)
    if place.nodes == 1:
        store = StorePlace(os.path.join(spec.run_dir, "stores", f"{index}"))
    else:
        store = StorePlace(f"{index}", place.store_host, rank.channel.get("store/0")["port"])
    return Assignment(
        label=label,
        rank=rank.rank,
        local_rank=rank.local_rank,
        world_size=place.world_size,
        backend=spec.backend,
        gpus=spec.gpus,
        store=store,
        limits=spec.trials.limits,
        set_env=set_env,
        unset_env=unset_env,
        measures=spec.trials.duel_measures if step.is_duel else step.measures,
        turns=spec.trials.duel_turns if step.is_duel else 1,
        side=side,
        sides=len(step.candidates),
    )


def _watch(rank: Rank, index: int, running: list[children.Child], on_stage: Listener | None, own_time: OwnTime) -> bool:
    """Listen until every child is done or the step is killed.

    Return whether the step was killed because of a hang.
    """
    while True:
        children.listen(running, LISTEN_S)
        if on_stage:
            on_stage(running[0])
        if all(child.is_done and child.end for child in running):
            return False
        if why := rank.why_killed(index):
            _let_end(running)
            return why == "hang"
        children.forgive(running, own_time.look(LISTEN_S))
        if why := _reason_to_kill(rank, running):
            rank.channel.put_first(f"kill/{index}", {"by": rank.rank, "why": why})


def _reason_to_kill(rank: Rank, running: list[children.Child]) -> str:
    if time.monotonic() > rank.spec.deadline_monotonic_s:
        return "deadline"
    for child in running:
        if child.end is not None and child.end.ended not in ("done", *children.CONSEQUENCES):
            return "failed"
        if children.is_overdue(child, rank.spec.trials.limits) or _waits_for_what_was_given_up(child):
            return "hang"
    return ""


def _waits_for_what_was_given_up(child: children.Child) -> bool:
    """Return whether the child still waits for an InfiniBand transfer that NCCL has given up.

    NCCL's log shows whether NCCL has given up a transfer.
    """
    now = time.monotonic()
    if child.end is None and child.assignment.backend.dialect == "nccl" and now > child.log_looked_at + LOOK_AT_LOG_S:
        child.log_looked_at = now
        if child.gave_up_at > now and gives_up(_debug_file(child), child.pid, child.log_read):
            child.gave_up_at = now
    return child.end is None and now > max(child.gave_up_at, child.moved_at) + AFTER_GIVING_UP_S


def _let_end(running: list[children.Child]) -> None:
    """Wait a short time for children that are about to end, so that they can report why."""
    until = time.monotonic() + OWN_END_GRACE_S
    while any(child.end is None for child in running) and time.monotonic() < until:
        children.listen(running, LISTEN_S)


def _outcome(child: children.Child) -> dict[str, Any]:
    assert child.end is not None  # kill() ends every child
    end, events = child.end, child.events
    if not child.is_done and child.assignment.backend.dialect == "nccl":
        pattern = _debug_file(child)
        path, log = last_words(pattern, child.pid)
        end = replace(end, log_file=os.path.join("nccl", os.path.basename(path)) if path else "", log=log)
        transport = texts_of(carried(pattern, child.pid))
        events = [*events, {"transport": transport}] if transport else events
    return {"end": encode(end), "events": events, "started_by": child.started_by}


class FirstLimit:
    """The time limit of the first collective in each test run.

    The results of earlier test runs may change the limit.
    """

    # At first, the limit comes from the plan. The limit may change after the default settings have failed and another
    # test run has worked. The limit is shorter if copies between GPUs are known to be broken.

    def __init__(self, limits: StageLimits, nodes: int) -> None:
        self._limits = limits
        self._may_shorten = limits.stretches and nodes == 1 and limits.first_s >= LEAST_S.value
        self._took_s = 0.0
        self._error_s = 0.0

    def note(self, result: TrialResult, answers: Sequence[RankAnswer]) -> None:
        """Record the `result` of a test run and its ranks' `answers`, which may change the limit."""
        if result.outcome is Outcome.OK and result.candidate != DEFAULT:
            events = [event for answer in answers for event in answer["events"]]
            self._took_s = max([self._took_s, *(event["first_s"] for event in events if "first_s" in event)])
        elif result.outcome in (Outcome.CRASH, Outcome.INIT_ERROR):
            self._error_s = max(self._error_s, result.duration_s)

    def limit_s(self, *, is_known_broken: bool) -> float:
        """Return the time limit in seconds for the first collective of the next test run.

        The limit is shorter if copies between GPUs are known to be broken (`is_known_broken`).
        """
        if not self._may_shorten:
            return self._limits.first_s
        if self._took_s:
            return max(LEAST_S.value, TIMES_WHAT_WORKED.value * self._took_s, TIMES_AN_ERROR * self._error_s)
        return min(self._limits.first_s, KNOWN_BROKEN_S) if is_known_broken else self._limits.first_s
