"""The phases of a job in which one rank works while the other ranks wait in a collective.

See docs/dev/nccl-facts.md, section 10.1.
"""

from __future__ import annotations

from dataclasses import dataclass

from preflight.model.bound import JUDGMENT, Bound
from preflight.model.gap import Gap, known_or
from preflight.model.job import Job, ParamCount, Save
from preflight.model.job_phases import START, Phase, Silence
from preflight.model.timeout import Part, Source, Timings
from preflight.model.units import decimal_text, seconds_text
from preflight.timeout.checkpoint_size import (
    bytes_per_parameter,
    checkpoint_bytes,
    gathered_bytes,
    rank_bytes,
    weight_bytes,
)

# What is assumed where nothing was measured: a shared file system that is busy, a host that is not.
ASSUMED_WRITE_BYTES_PER_S = Bound(
    0.2e9, "bytes/s at which one node writes to storage (assumed)",
    "a shared file system may be this slow while other jobs use it too",
    "scripts/studies/timeouts.py",
    "too high: writing a checkpoint outlasts the timeout; too low: a hang is noticed late",
)  # fmt: skip
ASSUMED_READ_BYTES_PER_S = Bound(
    0.2e9, "bytes/s at which one node reads from storage (assumed)",
    "a shared file system may be this slow while other jobs use it too",
    "scripts/studies/timeouts.py",
    "too high: loading the weights outlasts the timeout; too low: a hang is noticed late",
)  # fmt: skip
ASSUMED_GATHER_BYTES_PER_S = Bound(
    2e9, "bytes/s from other ranks' GPUs to one rank's host memory",
    "this is a low estimate, because pinned copies are ten times as fast",
    JUDGMENT,
    "too high: writing a checkpoint outlasts the timeout; too low: a hang is noticed late",
)  # fmt: skip
ASSUMED_STAGE_BYTES_PER_S = Bound(
    2e9, "bytes/s from a GPU to its rank's host memory",
    "this is a low estimate, because pinned copies are ten times as fast",
    JUDGMENT,
    "too high: writing a checkpoint outlasts the timeout; too low: a hang is noticed late",
)  # fmt: skip
PAUSE_FACTOR = Bound(
    3, "times the longest pause",
    "if other users load the storage, a pause may take several times as long",
    "scripts/studies/timeouts.py",
    "too low: a slow day ends the job; too high: a hang is noticed late",
)  # fmt: skip
PICKLE_BYTES_PER_S = Bound(
    1e9, "bytes/s at which torch.save serializes",
    "torch.save uses one thread, so a faster disk does not help",
    JUDGMENT,
    "too high: writing a checkpoint outlasts the timeout",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Pause:
    """A phase in which one rank works while the other ranks wait.

    `value_s` is the duration in seconds. `parts` names the timeouts that must cover the phase: the start timeout, the
    training timeout, or both.
    """

    # `source` says how the duration is known.

    name: str
    value_s: float
    parts: tuple[Part, ...]
    source: Source
    detail: str


def pauses(job: Job, timings: Timings) -> tuple[Pause, ...]:
    """Return the phases of `job` in which one rank works while the other ranks wait."""
    # The durations come from the record of an earlier run, or else from the model's size and the storage speeds in
    # `timings`. Durations that the user gave are added, and the duration of a checkpoint replaces the estimate.
    both, training = (Part.INIT, Part.TRAINING), (Part.TRAINING,)
    if job.silences:
        known = [_silence(each) for each in job.silences]
    else:
        known = [] if job.params is None else [_load(job, job.params, timings)]
        known += [] if job.params is None or job.save_s else [_save(job, job.params, timings)]
    given = (
        ("checkpoint", job.save_s, training, "one checkpoint takes this long, as you said"),
        ("preprocessing", job.preprocess_s, both, "one rank prepares the data, as you said"),
        ("first compilation", job.compile_s, both, "ranks compile for different times, as you said"),
        ("evaluation", job.eval_s, training, "one rank evaluates, as you said"),
    )
    stated = [Pause(name, value_s, parts, Source.GIVEN, why) for name, value_s, parts, why in given if value_s > 0]
    return (*known, *stated)


def _silence(seen: Silence) -> Pause:
    """Return the pause for one phase of an earlier run.

    The pause is the longest time in which no rank printed anything. In all phases except training, one rank may print
    while the others wait. In such a phase, the pause is at least a third of the phase. The timeout is a multiple of the
    pause, so that the timeout then covers the whole phase.
    """
    is_start, is_training = seen.phase == START, seen.phase == Phase.TRAINING
    value_s = seen.silent_s if is_training else max(seen.silent_s, seen.lasted_s / PAUSE_FACTOR.value)
    whole = "" if is_training else f"; the phase took {seconds_text(seen.lasted_s)}"
    detail = f"without output for {seconds_text(seen.silent_s)} at most, in a run that ended well{whole}"
    name = "the start of the run" if is_start else seen.phase
    return Pause(name, value_s, (Part.INIT if is_start else Part.TRAINING,), Source.MEASURED, detail)


def absorbed_bytes(timeout_s: float, factor: int, timings: Timings) -> float:
    """Return the size in bytes of the largest full checkpoint that rank 0 can write in `timeout_s` / `factor`."""
    return timeout_s / factor * _rank0_speed(timings)[0]


def _load(job: Job, params: ParamCount, timings: Timings) -> Pause:
    size = weight_bytes(job, params)
    if job.save is Save.FULL:
        speed, source, where = _speed(timings.read_one_bytes_per_s, ASSUMED_READ_BYTES_PER_S.value, timings, "read")
    else:  # a checkpoint in parts, of which each rank reads its own
        measured = known_or(timings.read_all_bytes_per_s, timings.read_one_bytes_per_s)
        speed, source, where = _all_nodes(measured, ASSUMED_READ_BYTES_PER_S.value, job, timings, "read")
    detail = f"{decimal_text(size)} of weights at {decimal_text(speed)}/s ({where})"
    return Pause("loading the weights", size / speed, (Part.INIT,), source, detail)


def _save(job: Job, params: ParamCount, timings: Timings) -> Pause:
    """Return the pause of the other ranks at a checkpoint.

    The ranks that have finished their part of the checkpoint wait for the last rank.
    """
    trained = "" if job.lora_share is None else f"the trained {100 * job.lora_share:g}% only, "
    what = f"{decimal_text(checkpoint_bytes(job, params))} ({trained}{bytes_per_parameter(job)} bytes per parameter)"
    how = {Save.FULL: _full, Save.SHARDED: _sharded, Save.ASYNC: _async}[job.save]
    value_s, source, detail = how(job, params, timings)
    return Pause("checkpoint", value_s, (Part.TRAINING,), source, f"{what}: {detail}")


def _full(job: Job, params: ParamCount, timings: Timings) -> tuple[float, Source, str]:
    speed, source, where = _rank0_speed(timings)
    detail = f"rank 0 writes it at {decimal_text(speed)}/s ({where})"
    if gathered := gathered_bytes(job, params):
        rate = decimal_text(ASSUMED_GATHER_BYTES_PER_S.value)
        detail += f", after it gathered {decimal_text(gathered)} at {rate}/s (assumed)"
    value_s = gathered / ASSUMED_GATHER_BYTES_PER_S.value + checkpoint_bytes(job, params) / speed
    return value_s, source, detail


def _sharded(job: Job, params: ParamCount, timings: Timings) -> tuple[float, Source, str]:
    measured = known_or(timings.write_all_bytes_per_s, timings.write_one_bytes_per_s)
    speed, source, where = _all_nodes(measured, ASSUMED_WRITE_BYTES_PER_S.value, job, timings, "write")
    size = checkpoint_bytes(job, params)
    return size / speed, source, f"all ranks together write it at {decimal_text(speed)}/s ({where})"


def _async(job: Job, params: ParamCount, _timings: Timings) -> tuple[float, Source, str]:
    rate, size = decimal_text(ASSUMED_STAGE_BYTES_PER_S.value), rank_bytes(job, params)
    detail = f"each rank copies {decimal_text(size)} to host memory at {rate}/s (assumed), written later"
    return size / ASSUMED_STAGE_BYTES_PER_S.value, Source.ASSUMED, detail


def _rank0_speed(timings: Timings) -> tuple[float, Source, str]:
    speed, source, where = _speed(timings.write_one_bytes_per_s, ASSUMED_WRITE_BYTES_PER_S.value, timings, "write")
    if speed <= PICKLE_BYTES_PER_S.value:
        return speed, source, where
    fast = decimal_text(speed)
    return PICKLE_BYTES_PER_S.value, source, f"one thread serialises at about that; {timings.directory} takes {fast}/s"


def _all_nodes(
    measured: float | Gap, assumed: float, job: Job, timings: Timings, verb: str
) -> tuple[float, Source, str]:
    """Return the speed of all nodes together in bytes/s, the source of this value, and its derivation in words.

    A file system that serves more nodes is usually built for a higher total speed. Each node therefore adds the assumed
    speed of one node. If the measured speed is lower, each node adds the measured speed instead. The result is at least
    the measured speed of one node.
    """
    one, source, where = _speed(measured, assumed, timings, verb)
    each, nodes = min(assumed, one), job.assumed_nodes
    if nodes * each <= one:
        return one, source, where
    return nodes * each, source, f"{where}, and {decimal_text(each)}/s for each of {nodes} nodes assumed"


def _speed(measured: float | Gap, assumed: float, timings: Timings, verb: str) -> tuple[float, Source, str]:
    if isinstance(measured, Gap):
        return assumed, Source.ASSUMED, f"assumed: no {verb} was measured"
    return measured, Source.MEASURED, f"measured in {timings.directory}"
