"""Which ranks hold up the job: those that are dead, stopped or elsewhere, before those that wait alike."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from preflight.model.gap import Gap
from preflight.model.stuck import Activity, Culprit, RankPlace, Reason
from preflight.model.stuck_evidence import NodeEvidence, RankProcess
from preflight.stuck.judge.advice import steps_for
from preflight.stuck.judge.wording import duration, rank_names, whereabouts

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
    return tuple([*_recorded(nodes, places), *_other_collective(waiting)][:2] or _path(nodes) or _same(waiting))


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
                yield _culprit(Reason.GPU_LOST, (), what, (gpu.uuid.reason,), node.host)


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
            yield _culprit(Reason.NEVER_CAME, here, what, (), host)
        else:
            is_are = "are" if len(here) > 1 else "is"
            what = f"{names} on {host} {is_are} dead" + (f"; {left[0]}" if left else "")
            yield _culprit(Reason.DEAD_RANK, here, what, tuple(left), host)


def _stopped(stopped: Sequence[RankPlace]) -> Iterator[Culprit]:
    for place in stopped:
        at = f" at {place.at}" if place.at else ""
        what = f"{rank_names([place])} on {place.host} (pid {place.pid}) is stopped by a signal{at}"
        yield _culprit(Reason.STOPPED_PROCESS, [place], what, ("the kernel gives its state as T",), place.host)


def _stopped_workers(busy: Sequence[RankPlace], nodes: Sequence[NodeEvidence]) -> Iterator[Culprit]:
    for node in nodes:
        for rank in node.ranks:
            place = next((p for p in busy if p.pid == rank.process.pid and p.host == node.host), None)
            pids = tuple(each.pid for each in rank.helpers if each.state == "T")
            if place is not None and pids and place.activity is Activity.DATA_LOADING:
                what = f"{rank_names([place])} on {node.host} waits for its data worker {pids[0]}, which is stopped"
                evidence = (f"the kernel gives the state of {pids[0]} as T",)
                yield Culprit(
                    Reason.STOPPED_PROCESS, tuple(r for r in [place.rank] if isinstance(r, int)), pids, node.host, what,
                    evidence, steps_for(Reason.STOPPED_PROCESS, place.activity, pids),
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
        yield Culprit(reason, _numbers(members), pids, host, what, evidence, steps)


def how_it_rests(place: RankPlace) -> str:
    """Say whether a rank sleeps or works."""
    if place.stands and isinstance(place.for_s, float):
        return f"has slept for {duration(place.for_s)}"
    return "did not run during the watch" if place.stands else "runs, or wakes now and then"


def _other_collective(waiting: Sequence[RankPlace]) -> Iterator[Culprit]:
    """Yield the ranks in the rarer call: another collective, or the same one called from another line."""
    calls: dict[tuple[str, str], list[RankPlace]] = defaultdict(list)
    for place in waiting:
        if place.activity is not Activity.UNSEEN:
            calls[place.doing, place.at].append(place)
    if len(calls) < 2:
        return
    usual = max(calls.values(), key=len)
    for (doing, at), members in sorted(calls.items(), key=lambda item: len(item[1])):
        if members is usual:
            continue
        within = f", within {members[0].within.replace('_', ' ')}" if members[0].within else ""
        verb = "are" if len(members) > 1 else "is"
        what = (
            f"{rank_names(members)} on {members[0].host} {verb} in {doing} ({at}{within}), "
            f"{len(usual)} others in {usual[0].doing} ({usual[0].at})"
        )
        evidence = tuple(f"pid {p.pid}: {how_it_rests(p)}" for p in members[:3])
        yield _culprit(Reason.OTHER_COLLECTIVE, members, what, evidence, members[0].host)


def _recorded(nodes: Sequence[NodeEvidence], places: Sequence[RankPlace]) -> Iterator[Culprit]:
    """Yield what NCCL's RAS and the flight recorder tell of ranks that all seem to be in the same collective."""
    world = {p.rank for p in places}
    for node in nodes:
        if not isinstance(node.recorded, Gap):
            numbers = {int(r) for r in node.recorded.ranks if r.isdigit()} & world
            members = [p for p in places if p.rank in numbers]
            what = f"by the flight recorder {rank_names(members)} {node.recorded.what}"
            yield _culprit(Reason.OTHER_COLLECTIVE, members, what, ("flight recorder dumps",), node.host)
        if not isinstance(node.ras, Gap):
            explanations = (
                (node.ras.missing_ranks, "does not answer"),
                (node.ras.mismatched_ranks, "has launched fewer operations"),
            )
            for ranks, what_it_does in explanations:
                members = [p for p in places if p.rank in ranks]
                if members and len(members) < len(places):
                    what = f"by NCCL's RAS {rank_names(members)} {what_it_does}"
                    yield _culprit(Reason.OTHER_COLLECTIVE, members, what, (f"RAS at {node.ras.address}",), node.host)


def _path(nodes: Sequence[NodeEvidence]) -> tuple[Culprit, ...]:
    """Return the ways on which what was sent is not acknowledged."""
    ways: dict[tuple[str, str, str], list[tuple[RankProcess, int, int]]] = defaultdict(list)
    for node in nodes:
        for rank in node.ranks:
            for each in rank.process.connections if isinstance(rank.process.connections, tuple) else ():
                if each.state == "ESTABLISHED" and each.send_queue_bytes > 0:  # and nobody has run for seconds
                    way = (node.host, each.local.rpartition(":")[0], each.remote.rpartition(":")[0])
                    ways[way].append((rank, each.send_queue_bytes, each.retransmits))
    found = []
    for (host, local, remote), queued in sorted(ways.items()):
        numbers = tuple(sorted({r.rank for r, _, _ in queued if isinstance(r.rank, int)}))
        size = sum(q for _, q, _ in queued)
        what = f"nothing arrives from {local} ({host}) at {remote}: {size} bytes are not acknowledged"
        evidence = tuple(f"pid {r.process.pid}: {n} retransmissions, {q} bytes queued" for r, q, n in queued[:3])
        pids = tuple(r.process.pid for r, _, _ in queued)
        steps = steps_for(Reason.PATH_BROKEN, Activity.COLLECTIVE, pids)
        found.append(Culprit(Reason.PATH_BROKEN, numbers, pids, host, what, evidence, steps))
    return tuple(found)


def _same(waiting: Sequence[RankPlace]) -> tuple[Culprit, ...]:
    readable = [p for p in waiting if p.activity is not Activity.UNSEEN]
    if not readable or len(readable) < len(waiting):
        return ()
    first = readable[0]
    what = f"all {len(readable)} ranks that were seen wait in {first.doing} ({first.at}), and nothing moves"
    return (_culprit(Reason.NOTHING_MOVES, (), what, (), ""),)


def _numbers(places: Iterable[RankPlace]) -> tuple[int, ...]:
    return tuple(sorted(p.rank for p in places if isinstance(p.rank, int)))


def _culprit(reason: Reason, places: Sequence[RankPlace], what: str, evidence: tuple[str, ...], host: str) -> Culprit:
    pids = tuple(p.pid for p in places if p.pid)
    activity = places[0].activity if places else Activity.COLLECTIVE
    return Culprit(reason, _numbers(places), pids, host, what, evidence, steps_for(reason, activity, pids))
