"""Find the ranks that hold up the job.

Each function yields the ranks for one kind of reason. `find_culprits` defines the order.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from preflight.model.gap import Gap, known_or
from preflight.model.stuck import Activity, Culprit, RankPlace, Reason, rank_names, ranks_of
from preflight.model.stuck_evidence import Connection, RankProcess, RasRank
from preflight.stuck.judge.advice import steps_for
from preflight.stuck.judge.rank_place import JobState

LOST = ("GpuIsLost", "fallen off")
ROOTED = ("broadcast", "scatter", "gather", "reduce")  # called in one line on the root, and in another on the others
LINE = re.compile(r":\d+(?=, )")
ENGINE_LOOPS = ("EngineCore",)  # of vLLM


def find_culprits(job: JobState) -> tuple[Culprit, ...]:
    """Return the ranks that hold up the job, with the reason. The result is empty if no rank can be named."""
    if job.is_idle:
        return tuple(idle_servers_faults(job))
    gone = [place for place in job.places if place.is_gone]
    stopped = [place for place in (*job.alive, *job.servers) if place.activity is Activity.STOPPED]
    busy = [place for place in job.alive if place not in stopped and not place.waits_for_others]
    if not job.waiting:  # an idle rank holds up only those that wait for it in a collective
        busy = [place for place in busy if place.activity is not Activity.IDLE] or busy
    if certain := (*lost_gpus(job), *gone_ranks(job, gone), *stopped_processes(job, stopped, busy)):
        return certain
    if busy:
        return tuple(ranks_elsewhere(job, [place for place in busy if not place.works]))  # who works is waited for
    behind: dict[tuple[int, ...], Culprit] = {}  # what others say of the same ranks is evidence
    by_ras = ranks_of_ras(job, [each for answer in job.ras_answers for each in answer.behind])
    for each in (*other_collectives(job), *recorded_lags(job), *by_ras):
        first = behind.get(each.ranks)
        behind[each.ranks] = replace(first, evidence=(*first.evidence, each.what)) if first else each
    if behind:
        return tuple(behind.values())[:2]
    missing = [each for answer in job.ras_answers for each in answer.missing]  # also on nodes that were not looked at
    return tuple(broken_paths(job)) or tuple(ranks_of_ras(job, missing)) or tuple(nothing_moves(job))


def _culprit(
    reason: Reason,
    places: Sequence[RankPlace],
    host: str,
    what: str,
    evidence: Iterable[str] = (),
    pids: Sequence[int] | None = None,
) -> Culprit:
    """Return the culprit for the ranks in `places`, with the steps to take.

    If `pids` is None, the culprit has the pids of these ranks.
    """
    pids = tuple(place.pid for place in places if place.pid) if pids is None else tuple(pids)
    steps = steps_for(reason, places[0].activity if places else Activity.COLLECTIVE, pids)
    return Culprit(reason, ranks_of(places), pids, host, what, tuple(evidence), steps)


def lost_gpus(job: JobState) -> Iterator[Culprit]:
    """Yield one culprit for each GPU that has fallen off the bus."""
    for node in job.nodes:
        for gpu in known_or(node.gpus, ()):
            if isinstance(gpu.uuid, Gap) and any(word in gpu.uuid.reason for word in LOST):
                what = f"GPU {gpu.nvml_index} of {node.host} has fallen off the bus"
                yield _culprit(
                    Reason.GPU_LOST, (), node.host, what, (gpu.uuid.reason, *known_or(node.xid_lines, ())[-2:])
                )


def gone_ranks(job: JobState, gone: Sequence[RankPlace]) -> Iterator[Culprit]:
    """Yield one culprit per node for the ranks in `gone`, which have no live process."""
    are_starting = bool(job.waiting) and all(place.activity is Activity.STARTING for place in job.waiting)
    missed_by_ras = {each.rank: each for answer in job.ras_answers for each in answer.missing}
    for host in sorted({place.host for place in gone}):
        here = [place for place in gone if place.host == host]
        names, ranks = rank_names(here), ranks_of(here)
        left = [
            f"its process {each.process.pid} ({each.process.name}) still runs and keeps its connections open"
            for node in job.nodes if node.host == host for each in node.orphans if each.rank in ranks
        ]  # fmt: skip
        if are_starting and not left:
            what = (
                f"{names} on {host} did not start, because no process has this rank number; the other ranks wait for "
                f"{names}"
            )
            yield _culprit(Reason.NEVER_CAME, here, host, what)
        else:
            what = f"{names} on {host} {'are' if len(here) > 1 else 'is'} dead" + (f"; {left[0]}" if left else "")
            said = (f"NCCL's RAS: {missed_by_ras[rank]}" for rank in ranks if rank in missed_by_ras)
            yield _culprit(Reason.DEAD_RANK, here, host, what, (*left, *said))


def stopped_processes(job: JobState, stopped: Sequence[RankPlace], busy: Sequence[RankPlace]) -> Iterator[Culprit]:
    """Yield culprits for the stopped processes, and for ranks that wait for a stopped data worker."""
    for place in stopped:
        at = f" at {place.at}" if place.at else ""
        what = f"{rank_names([place])} on {place.host} (pid {place.pid}) is stopped by a signal{at}"
        yield _culprit(Reason.STOPPED_PROCESS, [place], place.host, what, ["the kernel reports process state T"])
    loading = {(place.host, place.pid): place for place in busy if place.activity is Activity.DATA_LOADING}
    for node in job.nodes:
        for rank in node.ranks:
            pids = [each.pid for each in rank.helpers if each.state == "T"]
            if pids and (waits := loading.get((node.host, rank.process.pid))):
                what = f"{rank_names([waits])} on {node.host} waits for its data worker {pids[0]}, which is stopped"
                evidence = [f"the kernel gives the state of {pids[0]} as T"]
                yield _culprit(Reason.STOPPED_PROCESS, [waits], node.host, what, evidence, pids)


def idle_servers_faults(job: JobState) -> Iterator[Culprit]:
    """Yield the serving engine's processes that fail to give work to the idle ranks.

    Such a process is stopped, or waits in the engine's own loop.
    """
    stopped = [place for place in job.servers if place.activity is Activity.STOPPED]
    if stopped:
        yield from stopped_processes(job, stopped, ())
        return
    for place in job.servers:
        is_loop = place.name.startswith(ENGINE_LOOPS)
        if is_loop and place.activity is not Activity.IDLE and (place.stands or place.spins) and not place.works:
            what = f"{place.name} on {place.host} is {place.whereabouts}, and all {len(job.places)} ranks wait for work"
            yield _culprit(Reason.RANK_ELSEWHERE, [place], place.host, what, [place.rest])


def ranks_elsewhere(job: JobState, busy: Sequence[RankPlace]) -> Iterator[Culprit]:
    """Yield culprits for the ranks in `busy`, which do not wait for other ranks.

    Ranks in the same line of code form one culprit.
    """
    alike: dict[tuple[str, Activity, str, str], list[RankPlace]] = defaultdict(list)
    for place in busy:
        alike[place.host, place.activity, place.at, place.doing].append(place)
    for (host, *_), members in alike.items():
        first = members[0]
        reason = Reason.RANK_ELSEWHERE if job.waiting or job.before_full_rings else Reason.ALL_WAIT
        if first.stands and "a file system" in first.detail:
            reason = Reason.STORAGE
        what = f"{rank_names(members)} on {host} {'are' if len(members) > 1 else 'is'} {first.whereabouts}"
        yield _culprit(reason, members, host, what, (place.rest for place in members[:3]))


def other_collectives(job: JobState) -> Iterator[Culprit]:
    """Yield culprits if the waiting ranks are in different calls.

    The ranks in the most common call are not culprits.
    """
    # Two calls differ by collective or by line of code. If all ranks wait for their GPUs, no culprit is named.
    calls: dict[tuple[str, str], list[RankPlace]] = defaultdict(list)
    for place in job.waiting:
        if place.activity is not Activity.UNSEEN:
            calls[place.doing, place.at].append(place)
    _merge_root(calls)
    if len(calls) < 2 or all(place.activity is Activity.GPU_WORK for place in job.waiting):
        return
    usual = max(calls.values(), key=len)
    others = f"{len(usual)} other{'s' if len(usual) > 1 else ''} {usual[0].wait} ({usual[0].at})"
    for members in sorted(calls.values(), key=len):
        if members is not usual:
            first = members[0]
            verb = "wait" if len(members) > 1 else "waits"
            where = f"{first.wait} ({first.at}{first.surroundings})"
            what = f"{rank_names(members)} on {first.host} {verb} {where}, {others}"
            yield _culprit(Reason.OTHER_COLLECTIVE, members, first.host, what, (each.rest for each in members[:3]))


def _merge_root(calls: dict[tuple[str, str], list[RankPlace]]) -> None:
    """Count the root rank of a collective such as broadcast among the other ranks in the collective.

    The root rank may call the collective from another line than the other ranks do. The root is recognized if exactly
    one rank calls from another line.
    """
    for (doing, at), members in list(calls.items()):
        others = [
            key for key in calls if key != (doing, at) and key[0] == doing and LINE.sub("", key[1]) == LINE.sub("", at)
        ]
        if doing in ROOTED and len(members) == 1 and len(others) == 1:
            calls[others[0]] += calls.pop((doing, at))
            return


def recorded_lags(job: JobState) -> Iterator[Culprit]:
    """Yield the ranks that are behind, or in another collective, according to flight recorder dumps."""
    for node in job.nodes:
        if not isinstance(node.recorded, Gap):
            numbers = {int(rank) for rank in node.recorded.ranks if rank.isdecimal()}
            members = [place for place in job.places if place.rank in numbers]
            what = f"according to the flight recorder, {rank_names(members)} {node.recorded.what}"
            yield _culprit(Reason.OTHER_COLLECTIVE, members, node.host, what, ["flight recorder dumps"])


def ranks_of_ras(job: JobState, named: Iterable[RasRank]) -> Iterator[Culprit]:
    """Yield the ranks that NCCL's RAS names as behind or missing. If RAS names all ranks, yield nothing."""
    by_rank = {each.rank: each for each in sorted(named, key=lambda each: each.rank)}
    if by_rank and len(by_rank) < max(len(job.places), job.world_size):
        members = [place for place in job.places if place.rank in by_rank]
        what = f"according to NCCL's RAS, {'; '.join(map(str, list(by_rank.values())[:4]))}"
        found = _culprit(Reason.OTHER_COLLECTIVE, members, members[0].host if members else "", what)
        yield replace(found, ranks=tuple(by_rank))


def broken_paths(job: JobState) -> Iterator[Culprit]:
    """Yield the ranks at both ends of each network path on which sent data are not acknowledged."""
    owners: dict[tuple[str, str], RankProcess] = {}
    queued: dict[tuple[str, ...], list[tuple[str, RankProcess, Connection]]] = defaultdict(list)
    for node in job.nodes:
        for rank in node.ranks:
            for each in known_or(rank.process.connections, ()):
                owners[each.local, each.remote] = rank
                if each.state == "ESTABLISHED" and each.send_queue_bytes > 0:  # and no rank has run for seconds
                    queued[tuple(sorted((each.local_host, each.remote_host)))].append((node.host, rank, each))
    for _, connections in sorted(queued.items()):
        sizes: dict[tuple[str, str, str], int] = defaultdict(int)
        ends: dict[str, set[int]] = defaultdict(set)  # ranks by address
        for host, rank, each in connections:
            sizes[host, each.local_host, each.remote_host] += each.send_queue_bytes
            other = owners.get((each.remote, each.local))
            for address, owner in ((each.local_host, rank), (each.remote_host, other)):
                if owner is not None and isinstance(owner.rank, int):
                    ends[address].add(owner.rank)
        named = {
            address: f"{address}, {'ranks' if len(ranks) > 1 else 'rank'} {', '.join(map(str, sorted(ranks)[:8]))}"
            for address, ranks in ends.items()
        }
        ways = [
            f"from {named.get(local, local)} ({host}) at {named.get(remote, remote)} ({size_bytes} bytes are not "
            "acknowledged)"
            for (host, local, remote), size_bytes in sorted(sizes.items())
        ]
        evidence = [
            f"pid {rank.process.pid}: {each.retransmits} retransmissions, {each.send_queue_bytes} bytes queued to "
            f"{each.remote}"
            for _, rank, each in connections[:3]
        ]
        what = f"no data arrives {', nor '.join(ways)}"
        pids = tuple(dict.fromkeys(rank.process.pid for _, rank, _ in connections))
        found = _culprit(Reason.PATH_BROKEN, (), connections[0][0], what, evidence, pids)
        yield replace(found, ranks=tuple(sorted(set().union(*ends.values()))))


def nothing_moves(job: JobState) -> Iterator[Culprit]:
    """Yield one culprit without ranks if all ranks wait and no rank or path is known to be at fault."""
    # If the ranks may wait for a long computation on their GPUs, no culprit is yielded.
    seen = [place for place in job.waiting if place.activity is not Activity.UNSEEN]
    if not seen or len(seen) < max(len(job.waiting), job.world_size):
        return
    evidence = [
        f"NCCL's RAS reaches all ranks, and all have launched the same operations ({node.host})"
        for node in job.nodes
        if not isinstance(node.ras, Gap) and node.ras.is_level
    ]
    if any(place.activity is Activity.GPU_WORK for place in seen):
        gpus = [(node.host, each) for node in job.nodes for each in known_or(node.gpus, ()) if each.works is not None]
        if not gpus or any(each.works for _, each in gpus) or not all(place.stands for place in seen):
            return  # a long step on the GPU looks the same
        power = (
            f"GPU {gpu.nvml_index} of {host} {gpu.power_w:.0f} of {gpu.power_limit_w:.0f} W" for host, gpu in gpus[:4]
        )
        evidence.append(f"no GPU computes: {', '.join(power)}")
    lines = len({place.at for place in seen})
    at = seen[0].at + (f" and {lines - 1} other line{'s' if lines > 2 else ''}" if lines > 1 else "")
    what = f"all {len(seen)} ranks that were found wait {seen[0].wait} ({at}), and no rank makes progress"
    yield _culprit(Reason.NOTHING_MOVES, (), "", what, evidence)
