"""From the evidence of all nodes to the answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from preflight.model.gap import Gap
from preflight.model.stuck import EXIT_CODES, Activity, Culprit, RankPlace, Reason, StuckReport, StuckVerdict
from preflight.model.stuck_evidence import SCHEMA_VERSION, GpuState, NodeEvidence
from preflight.stuck.judge.culprits import find_culprits, missing_ranks
from preflight.stuck.judge.rank_place import place_rank
from preflight.stuck.judge.witnesses import WORKS_SHARE
from preflight.stuck.judge.wording import duration, rank_names, waits_in, whereabouts

MOMENT_S = 2.0
BUSY_PERCENT = 95.0


def answer(nodes: Sequence[NodeEvidence]) -> StuckReport:
    """Return which ranks are where, who holds up the job, and why."""
    places = tuple(
        sorted(_places(nodes), key=lambda p: (p.rank if isinstance(p.rank, int) else 1 << 30, p.host, p.pid))
    )
    verdict, culprits = _verdict(places, nodes)
    return StuckReport(
        SCHEMA_VERSION, verdict, EXIT_CODES[verdict], _summary(verdict, places, culprits, nodes), culprits, places,
        tuple(_hints(nodes, verdict)), tuple(_not_seen(nodes)), tuple(nodes),
    )  # fmt: skip


def _places(nodes: Sequence[NodeEvidence]) -> Iterator[RankPlace]:
    for node in nodes:
        yield from (place_rank(node, rank) for rank in node.ranks)
    for number, host in missing_ranks(nodes):
        unknown = Gap("no process carries its number")
        yield RankPlace(number, host, 0, Activity.MISSING, "no process", "", "", False, True, False, unknown, "")


def _verdict(places: Sequence[RankPlace], nodes: Sequence[NodeEvidence]) -> tuple[StuckVerdict, tuple[Culprit, ...]]:
    alive = [p for p in places if p.activity not in (Activity.DEAD, Activity.MISSING)]
    waiting = [p for p in alive if p.waits_for_others]
    if not alive:
        return StuckVerdict.UNKNOWN, ()
    if _is_idle(places):
        return StuckVerdict.NOT_STUCK, ()
    stands = any(p.stands for p in waiting) or any(p.activity is Activity.STOPPED for p in alive)
    if not stands and not waiting:
        stands = all(p.stands for p in alive)
    if not stands:
        return (StuckVerdict.NOT_STUCK if _moves(alive) and len(alive) == len(places) else StuckVerdict.UNKNOWN), ()
    culprits = find_culprits(places, nodes)
    return (StuckVerdict.STUCK if culprits else StuckVerdict.UNKNOWN), culprits


def _is_idle(places: Sequence[RankPlace]) -> bool:
    """Return whether every rank is a server's worker that waits for the next request."""
    return bool(places) and all(p.activity is Activity.IDLE for p in places)


def _moves(alive: Sequence[RankPlace]) -> bool:
    """Tell whether ranks were seen to move: those that wait have waited for moments only; nobody stands or spins."""
    waiting = [p.for_s for p in alive if p.waits_for_others]
    return not any(p.stands or p.spins for p in alive) and all(isinstance(s, float) and s < MOMENT_S for s in waiting)


def _summary(
    verdict: StuckVerdict, places: Sequence[RankPlace], culprits: Sequence[Culprit], nodes: Sequence[NodeEvidence]
) -> str:
    waiting = [p for p in places if p.waits_for_others and p.rank not in {r for c in culprits for r in c.ranks}]
    usual = Counter((p.doing, p.at) for p in waiting).most_common(1)
    watched = f"in {max((n.watched_s for n in nodes), default=0.0):.0f} s"
    match verdict:
        case StuckVerdict.NOT_STUCK if _is_idle(places):
            who = f"All {len(places)} ranks wait" if len(places) > 1 else "The only rank waits"
            return f"The server is idle: {who.lower()} for the next request. Requests themselves were not looked at."
        case StuckVerdict.NOT_STUCK:
            return f"The job goes on: every rank moved {watched}." + _slowest(places)
        case StuckVerdict.UNKNOWN:
            if not places:
                return "No rank of a job was found here."
            return _unknown(places, waiting)
        case StuckVerdict.STUCK:
            what = "; ".join(c.what for c in culprits[:3])
            if not usual or culprits[0].reason in (Reason.NOTHING_MOVES, Reason.OTHER_COLLECTIVE):
                return f"{what[0].upper()}{what[1:]}."
            (doing, at), count = usual[0]
            first = next(p for p in waiting if (p.doing, p.at) == (doing, at))
            wait = max((p.for_s for p in waiting if p.doing == doing and isinstance(p.for_s, float)), default=0.0)
            where = f"{waits_in(first)} ({at})" if at else f"for {doing}, as the kernel says"
            who = f"{count} rank{'s wait' if count > 1 else ' waits'} {where}"
            return f"{who}{f', for {duration(wait)}' if wait >= 1 else ''}; {what}."


def _unknown(places: Sequence[RankPlace], waiting: Sequence[RankPlace]) -> str:
    ended = [p for p in places if p.activity in (Activity.DEAD, Activity.MISSING)]
    if ended and not any(p.stands for p in waiting):
        return f"The job is ending: {rank_names(ended)} ended, and the others still move. Look again in a minute."
    if waiting and not any(p.stands or p.spins for p in waiting):
        return (
            f"It can't be told yet: {len(waiting)} of {len(places)} ranks wait, none for long. Look again, with "
            "--watch as long as a step takes."
        )
    if any(p.activity is Activity.GPU_WORK for p in waiting) or not waiting:
        return (
            f"{len(waiting) or len(places)} of {len(places)} ranks wait busily or work, each in one line: a long step "
            "looks like a hang. Look again, with --watch as long as a step takes, and on all nodes."
        )
    return f"{len(waiting)} of {len(places)} ranks wait, and it can't be told for whom or for what."


def _slowest(places: Sequence[RankPlace]) -> str:
    busy = [p for p in places if not p.waits_for_others]
    if not busy or len(busy) == len(places):
        return ""
    others = len(places) - len(busy)
    return f" When it was looked at, {rank_names(busy[:1])} was {whereabouts(busy[0])}, and {others} waited."


def _hints(nodes: Sequence[NodeEvidence], verdict: StuckVerdict) -> Iterator[str]:
    for node in nodes:
        waiting = [gpu.nvml_index for gpu in node.gpus if _seems_to_wait(gpu)] if isinstance(node.gpus, tuple) else []
        if waiting and verdict is not StuckVerdict.NOT_STUCK:
            numbers = ", ".join(map(str, waiting))
            yield f"GPU {numbers} of {node.host}: 100 % use at low power, as of a kernel that waits; a hint, no proof"
        if isinstance(node.xid_lines, tuple) and node.xid_lines and verdict is not StuckVerdict.NOT_STUCK:
            yield f"the kernel log of {node.host} holds {len(node.xid_lines)} Xids, the last: {node.xid_lines[-1]}"
        presumed = [r for r in node.ranks if r.rank_source.startswith("presumed")]
        if presumed:
            yield f"the numbers of the ranks on {node.host} are presumed from the order in which they started"


def _seems_to_wait(gpu: GpuState) -> bool:
    use, power, limit = gpu.utilization_percent, gpu.power_w, gpu.power_limit_w
    if isinstance(use, Gap) or isinstance(power, Gap) or isinstance(limit, Gap):
        return False
    return use >= BUSY_PERCENT and power < WORKS_SHARE * limit


def _not_seen(nodes: Sequence[NodeEvidence]) -> Iterator[str]:
    for node in nodes:
        start = f"{node.host}: " if len(nodes) > 1 else ""
        yield from (f"{start}{each}" for each in node.not_seen)
    sizes = {r.world_size for n in nodes for r in n.ranks if isinstance(r.world_size, int)}
    found_count = sum(len(node.ranks) for node in nodes)
    expected = max(sizes, default=0)
    if expected > found_count + len(missing_ranks(nodes)):
        rest = expected - found_count - len(missing_ranks(nodes))
        yield f"{rest} of {expected} ranks run on nodes that were not looked at: run it there too, with --out"
