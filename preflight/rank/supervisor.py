"""The supervisor of one rank: has torch from its parent, forks a child per trial, joins no collective, one thread.

Rank 0's supervisor is also the conductor. What crosses between supervisors is JSON on their control channel:

    ready/R         the supervisor of rank R has imported torch: no trial may take a slow disk for a stuck rank
    step/I          the conductor's next step: {"kind": "run" or "stop"} and the fields of a Step
                    (or "devices" or "groups": see device_step.py and group_step.py)
    kill/I          somebody ends step I for all: {"by": rank, "why": ...}
    end/I/R         rank R's outcome of step I
    ends/I/R        another node's ranks' outcomes, on node 0: {rank: outcome}, R is the first of them
    store/0         several nodes: {"port": ...} of the store that node 0 serves

On several nodes each has such a directory, and the launchers carry its files from one to the other (launch/mirror.py).
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from preflight.errors import HarnessError
from preflight.model.codec import decode, encode
from preflight.model.run import Assignment, Measure, RunSpec
from preflight.model.trial import Candidate
from preflight.plan.environment import trial_environment
from preflight.rank import children
from preflight.rank.channel import POLL_S, Channel
from preflight.rank.device_step import take_round
from preflight.rank.transport import carried, last_words

LISTEN_S = 0.02
OWN_END_GRACE_S = 0.75  # a child that another rank's death is about to end may still say so itself
OWN_TIMEOUT_SHARE = 0.7  # of the stage limit: ranks that wait raise before the limit, the stuck one stays silent
ANSWER_S = 10.0

Listener = Callable[[children.Child], None]


def supervise(spec_path: str) -> None:
    """Run this rank's part of every step until the conductor says stop; then what all nodes do together, if several."""
    spec = read_spec(spec_path)
    if int(os.environ["WORLD_SIZE"]) != spec.local_size:
        raise HarnessError(f"torchrun made {os.environ['WORLD_SIZE']} ranks, {spec.local_size} were asked for")
    _take_part(spec)
    while spec.goes_on:
        path = os.path.join(spec.run_dir, "together", os.path.basename(spec_path))
        while not os.path.exists(path):  # the launcher ends this process where it never comes
            time.sleep(POLL_S)
        spec = read_spec(path)
        _take_part(spec)


def read_spec(path: str) -> RunSpec:
    """Return what the launcher wrote for the ranks of this node."""
    with open(path, encoding="utf-8") as file:
        return decode(RunSpec, json.load(file))


def _take_part(spec: RunSpec) -> None:
    local_rank = int(os.environ["LOCAL_RANK"])
    channel = Channel(os.path.join(spec.run_dir, "control"))
    rank = Rank(spec.first_rank + local_rank, local_rank, spec, channel)
    rank.channel.put(f"ready/{rank.rank}", {})
    if rank.rank == 0:
        from preflight.rank.conductor import conduct  # noqa: PLC0415  only rank 0 needs it, and it needs this module

        conduct(rank)
    else:
        _follow(rank)


@dataclass(frozen=True, slots=True)
class Rank:
    """This process: which rank it supervises, for which run, over which channel."""

    rank: int
    local_rank: int
    spec: RunSpec
    channel: Channel


@dataclass(frozen=True, slots=True)
class Step:
    """One step that all ranks take together: a trial of one candidate, or a duel of two."""

    index: int
    label: str
    candidates: tuple[Candidate, ...]  # whole: the search makes some on its way, which no other rank knows by name
    by_exec: bool  # start the children by exec: CUDA failed in a forked one
    is_for_cure: bool = False  # measured at few sizes

    @property
    def is_duel(self) -> bool:
        return len(self.candidates) > 1


def _follow(rank: Rank) -> None:
    index = 0
    while True:
        rank.channel.wait(f"step/{index}", until=float("inf"))
        order = rank.channel.get(f"step/{index}")
        if order["kind"] == "stop":
            return
        if order["kind"] == "groups":
            from preflight.rank.group_step import take_groups  # noqa: PLC0415  it needs this module

            index = take_groups(rank, index, order)
            continue
        if order["kind"] == "devices":
            take_round(rank, index, order)
        else:
            take_step(rank, decode(Step, order))
        index += 1


def take_step(rank: Rank, step: Step, on_stage: Listener | None = None) -> None:
    """Run this rank's children of a step to their end and publish the outcome."""
    assignments = [assign(rank, step, side) for side in range(len(step.candidates))]
    running = [children.start(each, log_path_of(rank, each), step.by_exec) for each in assignments]
    rank.channel.put(f"end/{step.index}/{rank.rank}", run_to_end(rank, step, running, on_stage))


def run_to_end(
    rank: Rank, step: Step, running: list[children.Child], on_stage: Listener | None
) -> list[dict[str, Any]]:
    """Listen to children until they have ended or are to be killed; return how each ended."""
    hung = _watch(rank, step, running, on_stage)
    children.kill(running, hung, rank.spec.limits)
    return [_outcome(child) for child in running]


def log_path_of(rank: Rank, assignment: Assignment) -> str:
    """Return where a child's own output goes."""
    return os.path.join(rank.spec.run_dir, "logs", f"{assignment.label}.rank{rank.rank}.log")


def assign(rank: Rank, step: Step, side: int, also: tuple[tuple[str, str], ...] = ()) -> Assignment:
    """Return what this rank's child does on one side of a step; `also` is set over what the candidate sets."""
    spec = rank.spec
    candidate = candidate_here(spec, step.candidates[side])
    candidate = replace(candidate, env=(*candidate.env, *also))
    label = f"{step.index}-{side}" if step.is_duel else f"{step.index}"
    debug_file = os.path.join(spec.run_dir, "nccl", f"{label}.%h.%p.log")
    set_env, unset_env = trial_environment(candidate, spec.inherited, spec.dialect, debug_file)
    limits = spec.limits
    return Assignment(
        label=label,
        rank=rank.rank,
        local_rank=rank.local_rank,
        world_size=spec.world_size,
        backend=spec.backend,
        backend_module=spec.backend_module,
        dialect=spec.dialect,
        set_env=set_env,
        unset_env=unset_env,
        gpu_uuids=spec.gpu_uuids,
        gpu_bdfs=spec.gpu_bdfs,
        store_path=os.path.join(spec.run_dir, "stores", f"{step.index}") if spec.nodes == 1 else f"{step.index}",
        init_timeout_s=OWN_TIMEOUT_SHARE * min(limits.init_s, limits.first_s),
        timed_timeout_s=OWN_TIMEOUT_SHARE * limits.timed_s,
        timeout_stretches=limits.stretches,
        measures=_measures(spec, step),
        turns=spec.duel_turns if step.is_duel else 1,
        side=side,
        sides=len(step.candidates),
        store_host=spec.store_host,
        store_port=rank.channel.get("store/0")["port"] if spec.nodes > 1 else 0,
    )


def _measures(spec: RunSpec, step: Step) -> tuple[Measure, ...]:
    if step.is_duel:
        return spec.duel_measures
    return spec.cure_measures if step.is_for_cure else spec.measures


def candidate_here(spec: RunSpec, candidate: Candidate) -> Candidate:
    """Return the candidate with what it sets on this node."""
    own = next((own.env for own in spec.own_env if own.candidate == candidate.name), candidate.env)
    return replace(candidate, env=own)


def candidate_named(spec: RunSpec, name: str) -> Candidate:
    """Return the run's candidate of that name."""
    return next(candidate for candidate in spec.candidates if candidate.name == name)


def _watch(rank: Rank, step: Step, running: list[children.Child], on_stage: Listener | None) -> bool:
    """Listen until every child is done or the step is killed; return whether it was killed as hung."""
    kill_key = f"kill/{step.index}"
    while True:
        children.listen(running, LISTEN_S)
        if on_stage:
            on_stage(running[0])
        if all(child.is_done and child.end for child in running):
            return False
        if rank.channel.has(kill_key):
            _let_end(running)
            return str(rank.channel.get(kill_key)["why"]) == "hang"
        why = _reason_to_kill(rank, running)
        if why:
            rank.channel.put_first(kill_key, {"by": rank.rank, "why": why})


def _reason_to_kill(rank: Rank, running: list[children.Child]) -> str:
    if time.monotonic() > rank.spec.deadline_monotonic_s:
        return "deadline"
    for child in running:
        if child.end is not None and child.end.ended not in ("done", *children.CONSEQUENCES):
            return "failed"
        if children.is_overdue(child, rank.spec.limits):
            return "hang"
    return ""


def _let_end(running: list[children.Child]) -> None:
    """Give children that are dying anyway the time to say why."""
    until = time.monotonic() + OWN_END_GRACE_S
    while any(child.end is None for child in running) and time.monotonic() < until:
        children.listen(running, LISTEN_S)


def _outcome(child: children.Child) -> dict[str, Any]:
    assert child.end is not None  # kill() ends every child
    end, events = child.end, child.events
    if not child.is_done and child.assignment.dialect == "nccl":
        pattern = dict(child.assignment.set_env).get("NCCL_DEBUG_FILE", "")
        path, log = last_words(pattern, child.pid)
        end = replace(end, log_file=os.path.join("nccl", os.path.basename(path)) if path else "", log=log)
        transport = carried(pattern, child.pid)
        events = [*events, {"transport": transport}] if transport else events
    return {"end": encode(end), "events": events, "started_by": child.started_by}
