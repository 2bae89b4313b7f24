"""The safe timeout as a time budget: long enough for known pauses, short enough to notice a hang.

See docs/dev/nccl-facts.md, section 10.3.

    training = 3 x longest pause + 10 x (largest collective + rank skew) + NCCL's own retries
    init     = start + building the model + 3 x longest pause at the start
               + 10 x making the communicator, as measured + 3 x the assumed time of ranks that were not measured
               + NCCL's own retries

Both timeouts are rounded up to a minute, and kept between a minimum (the floor) and a maximum (the cap). The group's
timeout is the longer one, since torch has only one timeout. The multipliers are a judgment. A pause may take three
times as long if other users share the storage. A step of milliseconds may take ten times as long on a busy machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from preflight.model.bound import JUDGMENT, Bound
from preflight.model.gap import Gap
from preflight.model.job import Job, Save
from preflight.model.timeout import Part, SafeTimeout, Source, Term, Timings
from preflight.model.units import decimal_text, seconds_text
from preflight.timeout.checkpoint_size import DDP_BUCKET_BYTES, checkpoint_bytes, message_bytes
from preflight.timeout.frameworks import framework_lines, minutes_up
from preflight.timeout.pauses import ASSUMED_WRITE_BYTES_PER_S, PAUSE_FACTOR, Pause, pauses
from preflight.timeout.wording import notes_on, verdict_on

FLOOR_S = Bound(
    600, "s, the minimum of each timeout",
    "torch's default timeout for NCCL since torch 2.2 and torchrun's default join_timeout have this value",
    "scripts/studies/timeouts.py",
    "too low: a slow moment ends the job; too high: a hang is noticed late",
)  # fmt: skip
CAP_S = Bound(
    3600, "s, the maximum of each timeout",
    "a hang should not leave the GPUs idle for longer; a longer pause belongs outside the collectives",
    JUDGMENT,
    "too low: no timeout covers a long legitimate pause; too high: a hang costs hours",
)  # fmt: skip
COLLECTIVE_FACTOR = Bound(
    10, "times each of these measured times: the slowest collective, the rank skew, the start",
    "a loaded network may be far slower than a test",
    JUDGMENT,
    "too low: a loaded network ends the job",
)  # fmt: skip
ASSUMED_START_FACTOR = Bound(
    3, "times the assumed time to make the communicator",
    "the assumed time is already a high estimate",
    JUDGMENT,
    "too low: a slow start ends a large job",
)  # fmt: skip
START_S = Bound(
    120.0, "s for imports, for opening the data, and for nodes that start later",
    "in public logs, small models start in less time",
    "scripts/studies/timeouts.py",
    "too low: a slow start ends the job",
)  # fmt: skip
BUILD_S_PER_BILLION = Bound(
    1.0, "s per 1 B parameters to build and divide the model",
    "together with the other components of the start, it covers 11 public starts of a 405 B model, which took up to "
    "723 s",
    "scripts/studies/timeouts.py",
    "too low: the start of a large model ends the job",
)  # fmt: skip
ASSUMED_CONNECT_S, ASSUMED_CONNECT_PER_RANK_S = 5.0, 0.02  # seconds; minutes at thousands of ranks
ASSUMED_ALGBW_BYTES_PER_S = Bound(
    1e9, "bytes/s as the assumed speed of a collective",
    "a 10 Gbit/s network without RDMA carries about as much",
    JUDGMENT,
    "too high: the largest collective outlasts the timeout",
)  # fmt: skip
NO_PARAMS = Gap("--params was not given")
NO_PAUSE = Gap("no known pause in which one rank works while the others wait")
LOCAL_BYTES_PER_S = 2e9  # one NVMe drive, in round numbers


def safe_timeout(
    job: Job, timings: Timings, current_s: float | None = None, versions: Mapping[str, str] | None = None
) -> SafeTimeout:
    """Return the safe timeouts, how they were computed, and the setting for each framework.

    `current_s` is the job's own timeout in seconds, or None if unknown.
    """
    # The result has a verdict on the job's own timeout.
    found = pauses(job, timings)
    longest = max(found, key=lambda pause: pause.value_s, default=None)
    terms = _terms(found, job, timings)
    sums = {part: sum(term.counts_s for term in terms if term.part is part) for part in Part}
    floor_s = max(FLOOR_S.whole, 60 * minutes_up(min(timings.nccl_report_s, CAP_S.value)))
    init_s = _clamp(sums[Part.INIT], floor_s)
    total_s = max(sums.values())
    part = Part.INIT if sums[Part.INIT] > sums[Part.TRAINING] else Part.TRAINING
    largest = max((term for term in terms if term.part is part), key=lambda term: term.counts_s)
    training_s = _clamp(sums[Part.TRAINING], floor_s)
    pg_s = max(init_s, training_s)
    longest_s = longest.value_s if longest else 0.0
    answer = SafeTimeout(
        init_timeout_s=init_s,
        training_timeout_s=training_s,
        pg_timeout_s=pg_s,
        floor_s=floor_s,
        cap_s=CAP_S.whole,
        sum_s=total_s,
        longest_pause_s=longest_s,
        longest_source=longest.source if longest else NO_PAUSE,
        dominated_by=largest.name if total_s > floor_s else "the floor",
        is_enough=longest_s <= pg_s,
        checkpoint_bytes=NO_PARAMS if job.params is None else checkpoint_bytes(job, job.params),
        terms=terms,
        verdict="",
        smaller=_smaller(job, timings, largest) if total_s > floor_s else (),
        notes=(),
        frameworks=framework_lines(training_s, init_s, timings, versions or {}, PAUSE_FACTOR.whole),
    )
    return replace(answer, verdict=verdict_on(answer, current_s), notes=notes_on(answer, job, timings, current_s))


def _terms(found: tuple[Pause, ...], job: Job, timings: Timings) -> tuple[Term, ...]:
    report_s = min(timings.nccl_report_s, CAP_S.value)
    terms: list[Term] = []
    for part in Part:
        terms += _pause_terms(found, part)
        terms += _training(job, timings) if part is Part.TRAINING else _start(job, timings)
        why = f"its error is better evidence than a timeout: {timings.nccl_report_why}"
        terms.append(Term("NCCL's own retries", part, report_s, "s", 1, report_s, Source.ASSUMED, why))
    return tuple(terms)


def _pause_terms(found: tuple[Pause, ...], part: Part) -> list[Term]:
    """Return the pauses in one part of the job, the start or the training, as components of the time budget.

    Only the longest pause adds to the sum, because pauses occur at different times.
    """
    here = sorted((pause for pause in found if part in pause.parts), key=lambda pause: -pause.value_s)
    return [
        Term(each.name, part, each.value_s, "s", PAUSE_FACTOR.whole, 0.0 if i else PAUSE_FACTOR.value * each.value_s,
             each.source, each.detail)
        for i, each in enumerate(here)
    ]  # fmt: skip


def _training(job: Job, timings: Timings) -> list[Term]:
    size = DDP_BUCKET_BYTES if job.params is None else message_bytes(job, job.params)
    what = f"{decimal_text(size)} among {job.world_size} rank{'s' * (job.world_size > 1)}"
    if isinstance(timings.collective_s, Gap):
        value_s, source = size / ASSUMED_ALGBW_BYTES_PER_S.value, Source.ASSUMED
        detail = f"{what} at {decimal_text(ASSUMED_ALGBW_BYTES_PER_S.value)}/s, assumed: no trial was given"
    else:
        times = max(1.0, size / timings.collective_bytes)
        value_s, source = timings.collective_s * times, Source.MEASURED
        detail = f"{what}: the slowest call at {decimal_text(timings.collective_bytes)}"
        detail += f", times {times:.3g} for the size" if times > 1 else ""
        grown_s = value_s * max(1.0, job.world_size / timings.ranks) if timings.ranks else value_s
        # Where the additional ranks are behind a network, that is assumed to be no slower than this.
        value_s = min(grown_s, max(value_s, size / ASSUMED_ALGBW_BYTES_PER_S.value))
        detail += (
            f", more for {job.world_size} ranks in place of {timings.ranks} (assumed)" if grown_s > value_s else ""
        )
    terms = [_times("largest collective", Part.TRAINING, value_s, COLLECTIVE_FACTOR.whole, source, detail)]
    if not isinstance(timings.spread_s, Gap):
        detail = "the slowest rank behind the fastest in that collective"
        terms.append(
            _times("rank skew", Part.TRAINING, timings.spread_s, COLLECTIVE_FACTOR.whole, Source.MEASURED, detail)
        )
    return terms


def _start(job: Job, timings: Timings) -> list[Term]:
    start = "imports, opening the data, a node that starts later; assumed"
    terms = [Term("start", Part.INIT, START_S.value, "s", 1, START_S.value, Source.ASSUMED, start)]
    if job.params is not None and not job.silences:
        value_s = job.params.total / 1e9 * BUILD_S_PER_BILLION.value
        detail = f"{BUILD_S_PER_BILLION.value:g} s per 1 B parameters to make and divide them, assumed"
        terms.append(_times("building the model", Part.INIT, value_s, 1, Source.ASSUMED, detail))
    name, more_name, init = "making the communicator", "the additional ranks", Part.INIT
    if isinstance(timings.connect_s, Gap):
        value_s = ASSUMED_CONNECT_S + ASSUMED_CONNECT_PER_RANK_S * job.world_size
        detail = f"{ASSUMED_CONNECT_S:g} s and {ASSUMED_CONNECT_PER_RANK_S:g} s a rank, assumed: no trial was given"
        return [*terms, _times(name, init, value_s, ASSUMED_START_FACTOR.whole, Source.ASSUMED, detail)]
    detail = f"group and first collective of {timings.ranks} ranks"
    terms.append(_times(name, init, timings.connect_s, COLLECTIVE_FACTOR.whole, Source.MEASURED, detail))
    if timings.ranks and job.world_size > timings.ranks:
        per_rank_s = min(timings.connect_s / timings.ranks, ASSUMED_CONNECT_PER_RANK_S)
        more = job.world_size - timings.ranks
        detail = f"{per_rank_s:.2g} s for each of {more} more in making the communicator, assumed"
        terms.append(_times(more_name, init, per_rank_s * more, ASSUMED_START_FACTOR.whole, Source.ASSUMED, detail))
    return terms


def _times(name: str, part: Part, value_s: float, factor: int, source: Source, detail: str) -> Term:
    return Term(name, part, value_s, "s", factor, factor * value_s, source, detail)


OTHER_TERMS = {  # what would shorten a term that is no pause
    "making the communicator": "run `preflight check` on the job's nodes, then use --report",
    "the additional ranks": "run `preflight check` with as many ranks as the job has, then use --report",
    "largest collective": "--config config.json gives the size of a layer; --report gives the time of its collective",
    "rank skew": "find the late rank with `preflight check`",
    "NCCL's own retries": "set a smaller NCCL_IB_TIMEOUT or NCCL_IB_RETRY_CNT, so that NCCL reports its error earlier",
    "building the model": "use --from-run preflight-run.json, in which `preflight run` wrote the measured time",
    "start": "start the job on all nodes at once, with its imports on a local disk",
}
OTHER_PAUSES = {
    "preprocessing": ("preprocess once before the job starts, and train from the cache, to remove the pause",),
    "evaluation": (
        "evaluate on all ranks",
        'let the other ranks wait in a separate gloo group: dist.new_group(backend="gloo", timeout=timedelta(hours=4))',
    ),
    "first compilation": ("compile before the job starts into a cache that all ranks share (TORCHINDUCTOR_CACHE_DIR)",),
}
FASTER = "use a faster directory for checkpoints (a local disk, copied away later)"


def _smaller(job: Job, timings: Timings, largest: Term) -> tuple[str, ...]:
    """Return texts on changes to the job that would shorten the largest component of the time budget.

    If this component is a checkpoint, the texts also give the pause after the change.
    """
    name, now_s = largest.name, largest.value
    if name in OTHER_TERMS:
        return (OTHER_TERMS[name],)
    if name == "checkpoint" and largest.source is Source.GIVEN:
        return ("write it with all ranks (sharded), or in the background (async)", FASTER)
    if name == "checkpoint":
        others = [
            (save, pause.value_s)
            for save in Save
            for pause in pauses(replace(job, save=save), timings)
            if save is not job.save and pause.name == "checkpoint"
        ]
        found = [
            f"--save {save.value}: its pause is {seconds_text(then_s)} instead of {seconds_text(now_s)}"
            for save, then_s in sorted(others, key=lambda other: other[1])
            if then_s < 0.9 * now_s
        ]
        return (*found, FASTER)
    if name in OTHER_PAUSES:
        return OTHER_PAUSES[name]
    is_phase = any(each.phase in name for each in job.silences)
    return (f"make this phase shorter: {name}" if is_phase else "load from a local disk on every node",)


def _clamp(value_s: float, floor_s: int) -> int:
    return min(CAP_S.whole, max(floor_s, 60 * minutes_up(min(value_s, CAP_S.value))))


def storage_range(job: Job, timings: Timings, versions: Mapping[str, str]) -> str:
    """Return a text about the timeouts that a local NVMe disk and a slow network share would need.

    The result is "" if the storage was measured or makes no difference.
    """
    if job.params is None or job.silences or not isinstance(timings.write_one_bytes_per_s, Gap):
        return ""
    local = replace(
        timings, write_one_bytes_per_s=LOCAL_BYTES_PER_S, read_one_bytes_per_s=LOCAL_BYTES_PER_S,
        write_all_bytes_per_s=LOCAL_BYTES_PER_S * job.assumed_nodes,
        read_all_bytes_per_s=LOCAL_BYTES_PER_S * job.assumed_nodes, directory="a local disk",
    )  # fmt: skip
    fast, slow = (safe_timeout(job, each, None, versions) for each in (local, timings))
    if fast.pg_timeout_s == slow.pg_timeout_s:
        return ""
    return (
        f"The checkpoint storage is assumed to be slow ({decimal_text(ASSUMED_WRITE_BYTES_PER_S.value)}/s). "
        f"With a local NVMe ({decimal_text(LOCAL_BYTES_PER_S)}/s), {fast.pg_timeout_s:,} s is enough. "
        "--checkpoint-dir DIR measures your storage"
    )
