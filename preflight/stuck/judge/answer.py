"""The report on a hanging job: whether the job is stuck, which ranks hold up the job, and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from preflight.model.gap import Gap, known_or
from preflight.model.known_bugs import KnownBug
from preflight.model.stuck import (
    EXIT_CODES,
    NOT_YET,
    Activity,
    Culprit,
    RankPlace,
    Reason,
    StuckReport,
    StuckVerdict,
    rank_names,
)
from preflight.model.stuck_evidence import NO_PY_SPY, SCHEMA_VERSION, NodeEvidence
from preflight.model.units import capitalized, duration_text
from preflight.stuck.judge.culprits import find_culprits, idle_servers_faults
from preflight.stuck.judge.known import known_hangs, mapped_twice
from preflight.stuck.judge.rank_place import JobState

MOMENT_S = 2.0
BUSY_PERCENT = 95.0


def answer(nodes: Sequence[NodeEvidence], bugs: Sequence[KnownBug] = ()) -> StuckReport:
    """Return the report on a job from the evidence of all nodes.

    `bugs` are the known bugs of library versions.
    """
    job = JobState.of(nodes)
    verdict = _verdict(job)
    culprits = find_culprits(job) if verdict is StuckVerdict.STUCK else ()
    if verdict is StuckVerdict.STUCK and not culprits:
        verdict = StuckVerdict.UNKNOWN
    match verdict:
        case StuckVerdict.NOT_STUCK:
            summary = _why_not_stuck(job)
        case StuckVerdict.UNKNOWN:
            summary = _why_unknown(job)
        case StuckVerdict.STUCK:
            summary = _why_stuck(job, culprits)
    known = known_hangs(job, verdict, bugs) if _may_be_a_bug(culprits) else ()
    summary += f" {known[0].sentence}" if known else ""
    return StuckReport(
        SCHEMA_VERSION, verdict, EXIT_CODES[verdict], summary + _without_stacks(job), culprits, job.places,
        (*mapped_twice(job), *_hints(job, verdict)), tuple(_not_seen(job)), job.nodes, known,
    )  # fmt: skip


def _may_be_a_bug(culprits: Sequence[Culprit]) -> bool:
    """Return whether a bug of NCCL may explain the hang.

    A bug is possible if no culprit has an obvious reason, such as a dead rank.
    """
    return all(each.reason in (Reason.NOTHING_MOVES, Reason.OTHER_COLLECTIVE) for each in culprits)


def _verdict(job: JobState) -> StuckVerdict:
    """Return the verdict on the job.

    If no culprit is found, the function `answer` later turns STUCK into UNKNOWN.
    """
    alive, waiting = job.alive, job.waiting
    if not alive:
        return StuckVerdict.UNKNOWN
    if job.is_idle:
        return StuckVerdict.STUCK if any(idle_servers_faults(job)) else StuckVerdict.NOT_STUCK
    is_stopped = any(place.activity is Activity.STOPPED for place in (*alive, *job.servers))
    if is_stopped or job.before_full_rings or any(place.stands for place in waiting):
        return StuckVerdict.STUCK
    if not waiting and all(place.stands for place in alive):
        return StuckVerdict.STUCK
    # It moves if ranks that wait have waited for moments only, and none stands or spins.
    are_brief = all(isinstance(place.for_s, float) and place.for_s < MOMENT_S for place in waiting)
    moves = are_brief and not any(place.stands or place.spins for place in alive)
    return StuckVerdict.NOT_STUCK if moves and len(alive) == len(job.places) else StuckVerdict.UNKNOWN


def _why_not_stuck(job: JobState) -> str:
    count, waiting = len(job.places), len(job.waiting)
    if job.is_idle:
        ranks = f"all {count} ranks wait" if count > 1 else "the only rank waits"
        return f"The server is idle: {ranks} for the next request. The requests themselves were not checked."
    slowest = ""
    if 0 < waiting < count:
        busy = next(place for place in job.places if not place.waits_for_others)
        slowest = f" When preflight looked, {rank_names([busy])} was {busy.whereabouts}, and {waiting} waited."
    return (
        f"The job goes on: every rank made progress within {max(node.watched_s for node in job.nodes):.0f} s.{slowest}"
    )


def _why_unknown(job: JobState) -> str:
    count, waiting = len(job.places), job.waiting
    ended = [place for place in job.places if place.is_gone]
    if not job.places:
        return "No rank of a job was found here."
    if ended and not any(place.stands for place in waiting):
        some = f"The job is ending: {rank_names(ended)} ended, and the others still run. Rerun in a minute."
        return some if job.alive else f"Every rank here has ended: {rank_names(ended)}."
    if working := [place for place in job.places if place.works]:
        return _who_works(job, working)
    if waiting and not any(place.stands or place.spins for place in waiting):
        return (
            f"Not known yet: {len(waiting)} of {count} ranks wait, but none for long. Rerun with --watch as long as "
            "a step takes."
        )
    if any(place.activity is Activity.GPU_WORK for place in waiting) or not waiting:
        return (
            f"{len(waiting) or count} of {count} ranks busy-wait or work, each in one line. A long step looks the "
            f"same as a hang. Rerun with --watch as long as a step takes, and on all nodes."
        )
    return f"{len(waiting)} of {count} ranks wait, but it is unknown for which rank or for what."


def _who_works(job: JobState, working: Sequence[RankPlace]) -> str:
    """Return a sentence on ranks that make progress.

    The sentence says what these ranks do, and how many other ranks wait.
    """
    first = working[0]
    alike = [place for place in working if (place.host, place.whereabouts) == (first.host, first.whereabouts)]
    verb = "are" if len(alike) > 1 else "is"
    who, others = f"process {first.pid}" if len(alike) > 1 else "it", len(job.waiting)
    wait = f", and {others} other rank{'s wait' if others > 1 else ' waits'}" if others else ""
    return (
        f"{NOT_YET}: {rank_names(alike)} on {first.host} {verb} {first.whereabouts}; {who} {first.works}{wait}. "
        "Wait, and rerun in a minute."
    )


def _why_stuck(job: JobState, culprits: Sequence[Culprit]) -> str:
    what = "; ".join(each.what for each in culprits[:3])
    blamed = {rank for each in culprits for rank in each.ranks}
    waiting = [place for place in (job.waiting or job.before_full_rings) if place.rank not in blamed]
    if not blamed:  # a process of a server, or of no rank: only who really waits does so because of it
        waiting = [place for place in waiting if place.stands]
    if not waiting or culprits[0].reason in (Reason.NOTHING_MOVES, Reason.OTHER_COLLECTIVE):
        names = {place.name for place in (*job.places, *job.servers)}  # detokenizer, as the engine spells it
        return f"{what}." if what.split()[0] in names else f"{capitalized(what)}."
    ((doing, at), count), *_ = Counter((place.doing, place.at) for place in waiting).most_common(1)
    alike = [place for place in waiting if (place.doing, place.at) == (doing, at)]
    first = alike[0]
    where = f"{first.wait} ({at})" if at else f"for {doing}, as the kernel says"
    wait_s = max((p.for_s for p in waiting if p.doing == doing and isinstance(p.for_s, float)), default=0.0)
    time = f", for {duration_text(wait_s)}" if wait_s >= 1 else ""
    who = rank_names(alike) if all(place.name for place in alike) else f"{count} rank{'s' if count > 1 else ''}"
    return f"{who} wait{'' if count > 1 else 's'} {where}{time}; {what}."


def _without_stacks(job: JobState) -> str:
    """Return a sentence which says that no Python stack could be read because py-spy is missing.

    The result is "" if no node lacks py-spy.
    """
    stacks = [(node.host, rank.process.stacks) for node in job.nodes for rank in node.ranks]
    hosts = dict.fromkeys(host for host, each in stacks if isinstance(each, Gap) and each.reason.startswith(NO_PY_SPY))
    if not hosts:
        return ""
    where = f" on {', '.join(hosts)}" if len(job.nodes) > 1 else ""
    return f" No Python stack could be read{where}: {NO_PY_SPY} (pip install py-spy)."


def _hints(job: JobState, verdict: StuckVerdict) -> Iterator[str]:
    """Yield texts on evidence that suggests a cause but proves nothing."""
    for node in job.nodes:
        if verdict is not StuckVerdict.NOT_STUCK:
            busy = [gpu for gpu in known_or(node.gpus, ()) if known_or(gpu.utilization_percent, 0.0) >= BUSY_PERCENT]
            if waiting := ", ".join(str(gpu.nvml_index) for gpu in busy if gpu.works is False):
                yield (
                    f"GPU {waiting} of {node.host} shows 100% use at low power, so a kernel on this GPU likely waits"
                )
            if xids := known_or(node.xid_lines, ()):
                yield f"the kernel log of {node.host} has {len(xids)} Xids; the last one is {xids[-1]}"
        if any(rank.rank_source.startswith("presumed") for rank in node.ranks):
            yield f"the rank numbers on {node.host} are a guess from the order in which the ranks started"


def _not_seen(job: JobState) -> Iterator[str]:
    """Yield texts on evidence that could not be read, each with the step that would make it readable."""
    for node in job.nodes:
        start = f"{node.host}: " if len(job.nodes) > 1 else ""
        yield from (f"{start}{each}" for each in node.not_seen)
    if (rest := job.world_size - len(job.places)) > 0:
        there = "nodes that were not checked; run `preflight stuck --out DIR` on these nodes too"
        yield f"{rest} of {job.world_size} ranks run on {there}"
