"""What lines, NCCL's RAS, the flight recorder, sockets and GPUs tell of ranks that all wait for others."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from preflight.model.gap import Gap
from preflight.model.stuck import Activity, Culprit, RankPlace, Reason
from preflight.model.stuck_evidence import Connection, NodeEvidence, RankProcess, RasRank
from preflight.stuck.judge.advice import blame, how_it_rests, steps_for
from preflight.stuck.judge.wording import rank_names, waits_in

WORKS_SHARE = 0.45  # of a GPU's power limit: a kernel that waits takes less


def merged(culprits: Iterable[Culprit]) -> tuple[Culprit, ...]:
    """Return a culprit for each set of ranks; what others say of the same ranks is evidence."""
    found: dict[tuple[int, ...], Culprit] = {}
    for each in culprits:
        first = found.get(each.ranks)
        found[each.ranks] = replace(first, evidence=(*first.evidence, each.what)) if first else each
    return tuple(found.values())


def other_collective(waiting: Sequence[RankPlace]) -> Iterator[Culprit]:
    """Yield the ranks in the rarer call: another collective, or the same one called from another line.

    Ranks that wait for their GPUs may do so in different lines and yet for the same collective.
    """
    calls: dict[tuple[str, str], list[RankPlace]] = defaultdict(list)
    for place in waiting:
        if place.activity is not Activity.UNSEEN:
            calls[place.doing, place.at].append(place)
    if len(calls) < 2 or all(place.activity is Activity.GPU_WORK for place in waiting):
        return
    usual = max(calls.values(), key=len)
    for members in sorted(calls.values(), key=len):
        if members is usual:
            continue
        first = members[0]
        within = f", within {first.within.replace('_', ' ')}" if first.within else ""
        verb = "wait" if len(members) > 1 else "waits"
        others = f"{len(usual)} other{'s' if len(usual) > 1 else ''} {waits_in(usual[0])} ({usual[0].at})"
        what = f"{rank_names(members)} on {first.host} {verb} {waits_in(first)} ({first.at}{within}), {others}"
        evidence = [f"pid {p.pid}: {how_it_rests(p)}" for p in members[:3]]
        yield blame(Reason.OTHER_COLLECTIVE, members, what, evidence, first.host)


def recorded(nodes: Sequence[NodeEvidence], places: Sequence[RankPlace]) -> Iterator[Culprit]:
    """Yield what flight recorder dumps tell."""
    for node in nodes:
        if not isinstance(node.recorded, Gap):
            numbers = {int(r) for r in node.recorded.ranks if r.isdecimal()}
            members = [p for p in places if p.rank in numbers]
            what = f"by the flight recorder {rank_names(members)} {node.recorded.what}"
            yield blame(Reason.OTHER_COLLECTIVE, members, what, ("flight recorder dumps",), node.host)


def behind_by_ras(nodes: Sequence[NodeEvidence], places: Sequence[RankPlace]) -> Iterator[Culprit]:
    """Yield the ranks that have launched less than others, as RAS counts."""
    yield from _by_ras([each for node in nodes for each in _ras_ranks(node, is_missing=False)], nodes, places)


def missing_by_ras(nodes: Sequence[NodeEvidence], places: Sequence[RankPlace]) -> tuple[Culprit, ...]:
    """Return the ranks of which RAS hears nothing: also those on nodes that were not looked at."""
    return tuple(_by_ras([each for node in nodes for each in _ras_ranks(node, is_missing=True)], nodes, places))


def said_by_ras(nodes: Sequence[NodeEvidence], places: Sequence[RankPlace]) -> tuple[str, ...]:
    """Return what RAS says of ranks that are gone."""
    missing = {each.rank: each for node in nodes for each in _ras_ranks(node, is_missing=True)}
    return tuple(
        f"NCCL's RAS: {_named(missing[p.rank])}" for p in places if isinstance(p.rank, int) and p.rank in missing
    )


def _ras_ranks(node: NodeEvidence, is_missing: bool) -> tuple[RasRank, ...]:
    if isinstance(node.ras, Gap):
        return ()
    return node.ras.missing if is_missing else node.ras.behind


def _named(each: RasRank) -> str:
    process = f" (process {each.pid} on {each.node})" if each.pid else ""
    return f"rank {each.rank}{process} {each.what}"


def _by_ras(
    missing: Sequence[RasRank], nodes: Sequence[NodeEvidence], places: Sequence[RankPlace]
) -> Iterator[Culprit]:  # fmt: skip
    by_rank = {each.rank: each for each in missing}
    if not by_rank or len(by_rank) >= max(len(places), _world_size(nodes)):
        return
    members = [p for p in places if p.rank in by_rank]
    what = "by NCCL's RAS " + "; ".join(_named(by_rank[number]) for number in sorted(by_rank)[:4])
    found = blame(Reason.OTHER_COLLECTIVE, members, what, (), members[0].host if members else "")
    yield replace(found, ranks=tuple(sorted(by_rank)))


def _world_size(nodes: Sequence[NodeEvidence]) -> int:
    return max((r.world_size for n in nodes for r in n.ranks if isinstance(r.world_size, int)), default=0)


def broken_paths(nodes: Sequence[NodeEvidence]) -> tuple[Culprit, ...]:
    """Return the pairs of addresses between which what was sent is not acknowledged, with the ranks at both ends."""
    owners: dict[tuple[str, str], RankProcess] = {}
    pairs: dict[tuple[str, ...], list[tuple[str, RankProcess, Connection]]] = defaultdict(list)
    for node in nodes:
        for rank in node.ranks:
            for each in rank.process.connections if isinstance(rank.process.connections, tuple) else ():
                owners[each.local, each.remote] = rank
                if each.state == "ESTABLISHED" and each.send_queue_bytes > 0:  # and nobody has run for seconds
                    pairs[tuple(sorted((_host(each.local), _host(each.remote))))].append((node.host, rank, each))
    return tuple(_broken(queued, owners) for _, queued in sorted(pairs.items()))


def _host(address: str) -> str:
    return address.rpartition(":")[0]


def _broken(
    queued: Sequence[tuple[str, RankProcess, Connection]], owners: dict[tuple[str, str], RankProcess]
) -> Culprit:  # fmt: skip
    sizes: dict[tuple[str, str, str], int] = defaultdict(int)
    ends: dict[str, set[int]] = defaultdict(set)
    for host, rank, each in queued:
        sizes[host, _host(each.local), _host(each.remote)] += each.send_queue_bytes
        for address, owner in ((each.local, rank), (each.remote, owners.get((each.remote, each.local)))):
            if owner is not None and isinstance(owner.rank, int):
                ends[_host(address)].add(owner.rank)
    ways = [
        f"from {local}{_ranks_at(ends[local])} ({host}) at {remote}{_ranks_at(ends[remote])}: {size} bytes"
        for (host, local, remote), size in sorted(sizes.items())
    ]
    evidence = [f"pid {r.process.pid}: {c.retransmits} retransmissions, {c.send_queue_bytes} bytes queued to "
                f"{c.remote}" for _, r, c in queued[:3]]  # fmt: skip
    pids = tuple(dict.fromkeys(r.process.pid for _, r, _ in queued))
    numbers = tuple(sorted(set().union(*ends.values())))
    what = f"nothing arrives {', nor '.join(ways)} are not acknowledged"
    steps = steps_for(Reason.PATH_BROKEN, Activity.COLLECTIVE, pids)
    return Culprit(Reason.PATH_BROKEN, numbers, pids, queued[0][0], what, tuple(evidence), steps)


def _ranks_at(numbers: Iterable[int]) -> str:
    found = sorted(numbers)
    return f", {'ranks' if len(found) > 1 else 'rank'} {', '.join(map(str, found[:8]))}" if found else ""


def same(waiting: Sequence[RankPlace], nodes: Sequence[NodeEvidence]) -> tuple[Culprit, ...]:
    """Return that all ranks wait alike and nothing tells which path is at fault; nothing where a rank was not seen."""
    readable = [p for p in waiting if p.activity is not Activity.UNSEEN]
    if not readable or len(readable) < max(len(waiting), _world_size(nodes)):
        return ()
    evidence = [f"NCCL's RAS hears of all ranks, and all have launched the same ({node.host})"
                for node in nodes if not isinstance(node.ras, Gap) and node.ras.is_level]  # fmt: skip
    if any(p.activity is Activity.GPU_WORK for p in readable):
        power = list(_power(nodes))
        if not power or any(works for works, _ in power) or not all(p.stands for p in readable):
            return ()  # a long step on the GPU looks the same
        evidence += [f"no GPU computes: {', '.join(told for _, told in power[:4])}"]
    first = readable[0]
    lines = len({p.at for p in readable})
    at = first.at + (f" and {lines - 1} other line{'s' if lines > 2 else ''}" if lines > 1 else "")
    what = f"all {len(readable)} ranks that were seen wait {waits_in(first)} ({at}), and nothing moves"
    return (blame(Reason.NOTHING_MOVES, (), what, evidence, ""),)


def _power(nodes: Sequence[NodeEvidence]) -> Iterator[tuple[bool, str]]:
    """Yield of each GPU whether it computes, and its power."""
    for node in nodes:
        for gpu in node.gpus if isinstance(node.gpus, tuple) else ():
            if isinstance(gpu.power_w, float) and isinstance(gpu.power_limit_w, float):
                power = f"GPU {gpu.nvml_index} of {node.host} {gpu.power_w:.0f} of {gpu.power_limit_w:.0f} W"
                yield gpu.power_w >= WORKS_SHARE * gpu.power_limit_w, power
