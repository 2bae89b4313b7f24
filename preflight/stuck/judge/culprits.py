"""Which ranks hold up the job: those that are dead, stopped or elsewhere, before those that wait alike."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from preflight.model.gap import Gap
from preflight.model.stuck import Activity, Culprit, RankPlace, Reason
from preflight.model.stuck_evidence import NodeEvidence
from preflight.stuck.judge.advice import blame, how_it_rests, numbers_of, steps_for
from preflight.stuck.judge.witnesses import (
    behind_by_ras,
    broken_paths,
    merged,
    missing_by_ras,
    other_collective,
    recorded,
    said_by_ras,
    same,
)
from preflight.stuck.judge.wording import rank_names, whereabouts

LOST = ("GpuIsLost", "fallen off")


def find_culprits(places: Sequence[RankPlace], nodes: Sequence[NodeEvidence]) -> tuple[Culprit, ...]:
    """Return who holds up the job; () where that can't be told."""
    gone = [p for p in places if p.activity in (Activity.DEAD, Activity.MISSING)]
    stopped = [p for p in places if p.activity is Activity.STOPPED]
    busy = [p for p in places if not p.waits_for_others and p not in gone and p not in stopped]
    waiting = [p for p in places if p.waits_for_others]
    found = [*_lost_gpus(nodes), *_gone(gone, waiting, nodes), *_stopped(stopped), *_stopped_workers(busy, nodes)]
    if found:
        return tuple(found)
    if busy:
        return tuple(_elsewhere(busy, bool(waiting)))
    behind = merged([*other_collective(waiting), *recorded(nodes, places), *behind_by_ras(nodes, places)])
    return behind[:2] or broken_paths(nodes) or missing_by_ras(nodes, places) or same(waiting, nodes)


def missing_ranks(nodes: Sequence[NodeEvidence]) -> tuple[tuple[int, str], ...]:
    """Return the ranks that should run on a node that was looked at, and its host."""
    found = []
    for node in nodes:
        numbers = {each.rank for each in node.ranks if isinstance(each.rank, int)}
        size = next((each.local_world_size for each in node.ranks if isinstance(each.local_world_size, int)), 0)
        if numbers and 0 < size <= 4096:
            first = min(numbers) // size * size
            found += [(number, node.host) for number in range(first, first + size) if number not in numbers]
    return tuple(found)


def _lost_gpus(nodes: Sequence[NodeEvidence]) -> Iterator[Culprit]:
    for node in nodes:
        for gpu in node.gpus if isinstance(node.gpus, tuple) else ():
            if isinstance(gpu.uuid, Gap) and any(word in gpu.uuid.reason for word in LOST):
                what = f"GPU {gpu.nvml_index} of {node.host} has fallen off the bus"
                xids = node.xid_lines if isinstance(node.xid_lines, tuple) else ()
                yield blame(Reason.GPU_LOST, (), what, (gpu.uuid.reason, *xids[-2:]), node.host)


def _gone(gone: Sequence[RankPlace], waiting: Sequence[RankPlace], nodes: Sequence[NodeEvidence]) -> Iterator[Culprit]:
    starting = bool(waiting) and all(p.activity is Activity.STARTING for p in waiting)
    for host in sorted({p.host for p in gone}):
        here = [p for p in gone if p.host == host]
        names = rank_names(here)
        left = [
            f"its process {o.process.pid} ({o.process.name}) is still there and keeps its connections open"
            for node in nodes if node.host == host
            for o in node.orphans if any(p.rank == o.rank for p in here)
        ]  # fmt: skip
        if starting and not left:
            what = f"{names} on {host} never came: no process carries that number, and the others wait for it to start"
            yield blame(Reason.NEVER_CAME, here, what, (), host)
        else:
            is_are = "are" if len(here) > 1 else "is"
            what = f"{names} on {host} {is_are} dead" + (f"; {left[0]}" if left else "")
            yield blame(Reason.DEAD_RANK, here, what, (*left, *said_by_ras(nodes, here)), host)


def _stopped(stopped: Sequence[RankPlace]) -> Iterator[Culprit]:
    for place in stopped:
        at = f" at {place.at}" if place.at else ""
        what = f"{rank_names([place])} on {place.host} (pid {place.pid}) is stopped by a signal{at}"
        yield blame(Reason.STOPPED_PROCESS, [place], what, ("the kernel gives its state as T",), place.host)


def _stopped_workers(busy: Sequence[RankPlace], nodes: Sequence[NodeEvidence]) -> Iterator[Culprit]:
    for node in nodes:
        for rank in node.ranks:
            place = next((p for p in busy if p.pid == rank.process.pid and p.host == node.host), None)
            pids = tuple(each.pid for each in rank.helpers if each.state == "T")
            if place is not None and pids and place.activity is Activity.DATA_LOADING:
                what = f"{rank_names([place])} on {node.host} waits for its data worker {pids[0]}, which is stopped"
                evidence = (f"the kernel gives the state of {pids[0]} as T",)
                steps = steps_for(Reason.STOPPED_PROCESS, place.activity, pids)
                yield Culprit(
                    Reason.STOPPED_PROCESS, numbers_of([place]), pids, node.host, what, evidence, steps
                )  # fmt: skip


def _elsewhere(busy: Sequence[RankPlace], others_wait: bool) -> Iterator[Culprit]:
    alike: dict[tuple[str, Activity, str, str], list[RankPlace]] = defaultdict(list)
    for place in busy:
        alike[place.host, place.activity, place.at, place.doing].append(place)
    for (host, activity, _, _), members in alike.items():
        first = members[0]
        reason = Reason.RANK_ELSEWHERE if others_wait else Reason.ALL_WAIT
        if first.stands and "a file system" in first.detail:
            reason = Reason.STORAGE
        verb = "are" if len(members) > 1 else "is"
        what = f"{rank_names(members)} on {host} {verb} {whereabouts(first)}"
        evidence = tuple(f"pid {p.pid}: {how_it_rests(p)}" for p in members[:3])
        pids = tuple(p.pid for p in members)
        steps = steps_for(Reason.RANK_ELSEWHERE if reason is Reason.ALL_WAIT else reason, activity, pids)
        yield Culprit(reason, numbers_of(members), pids, host, what, evidence, steps)
