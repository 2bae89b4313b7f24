"""The timeout setting of each framework, and the variables to export.

See docs/dev/nccl-facts.md, sections 4.4 and 4.5.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from preflight.model.gap import Gap
from preflight.model.parsing import version_tuple
from preflight.model.timeout import FrameworkLine, SafeTimeout, Timings
from preflight.timeout.framework_calls import CALLS
from preflight.timeout.pauses import absorbed_bytes

# Distributions whose version decides what a line looks like or what its default is.
DISTRIBUTIONS = ("torch", "transformers", "accelerate", "deepspeed", "lightning", "megatron-core", "torchtitan")
PG_TIMEOUT = "PREFLIGHT_PG_TIMEOUT_S"
INIT_TIMEOUT = "PREFLIGHT_INIT_TIMEOUT_S"
DEEPSPEED = "DEEPSPEED_TIMEOUT"
RECORDED_CALLS = "2000"  # torch's own default from 2.11 on
# Of the flight recorder.
FIRST_WITH_RECORDER, FIRST_WITH_DUMP, FIRST_WITH_NEW_NAME, FIRST_THAT_RECORDS = (2, 2), (2, 7), (2, 8), (2, 11)
MEGATRON_LATER = "--distributed-timeout-seconds-after-init"
FIRST_WITH_10_MINUTES = (2, 2)  # torch's default for NCCL; before, 30 minutes for every backend
FIRST_WITH_SET_TIMEOUT, FIRST_WITH_PRIVATE_ONE = (2, 14), (2, 4)
DEEPSPEED_FIRST_WITH_10_MINUTES = (0, 19, 6)  # read in its sources: 30 in 0.19.5, 10 in 0.19.6


def framework_lines(
    training_s: int, init_s: int, timings: Timings, versions: Mapping[str, str], factor: int
) -> tuple[FrameworkLine, ...]:
    """Return the timeout setting of each framework.

    Each result also has the largest checkpoint that the framework's default timeout allows. `training_s` and `init_s`
    are the timeouts for training and for the start, in seconds.
    """
    # A framework with only one timeout gets the longer timeout. `versions` has the versions of the installed packages.
    pg_s = max(training_s, init_s)

    def line(name: str, text: str, value: int, unit: str, default_s: int | Gap, note: str) -> FrameworkLine:
        sets_s = value * 60 if unit == "min" else value
        return FrameworkLine(name, text, value, unit, sets_s, default_s, _absorbs(default_s, timings, factor), note)

    minutes = minutes_up(pg_s)
    calls = {name: call.format(s=pg_s, m=minutes) for name, call in CALLS.items()}
    return (
        line("torch", f"dist.{calls['torch']}", pg_s, "s", *_torch(versions.get("torch", ""), training_s, pg_s)),
        line("torchrun", f"torchrun --rdzv-backend c10d --rdzv-conf join_timeout={init_s} ...", init_s, "s", 600,
             "how long nodes wait for each other; the static rendezvous calls it `timeout` (900 s)"),
        line("transformers", calls["transformers"], pg_s, "s", 1800,
             f"or TrainingArguments(ddp_timeout={pg_s}); on NCCL as well; lost with --use_cpu"),
        line("accelerate", calls["accelerate"], pg_s, "s", 600,
             "in Accelerator(kwargs_handlers=[...]), before anything else makes the group"),
        line("deepspeed", calls["deepspeed"], minutes, "min", deepspeed_default_s(versions),
             "in whole minutes; or deepspeed.init_distributed(timeout=timedelta(...))"),
        line("lightning", f"Trainer(strategy={calls['lightning']})", pg_s, "s", 1800,
             "FSDPStrategy, DeepSpeedStrategy and ModelParallelStrategy take it too"),
        line("megatron", f"{CALLS['megatron'].format(m=minutes_up(init_s))} {MEGATRON_LATER} {training_s}",
             training_s, "s", 600, "the second, which not every release has, holds from the second step on; without it "
             f"{calls['megatron']}"),
        line("torchtitan", f"--comm.init_timeout_seconds {init_s} {CALLS['torchtitan'].format(s=training_s)}",
             training_s, "s", 100,
             "the second holds from the second step on; by default 300 s before it, 100 s after it"),
    )  # fmt: skip


def minutes_up(value_s: float) -> int:
    """Return `value_s` seconds in minutes, rounded up."""
    return math.ceil(value_s / 60)


def deepspeed_default_s(versions: Mapping[str, str]) -> int | Gap:
    """Return DeepSpeed's default timeout in seconds, or a Gap (an unknown value) if DeepSpeed is not installed."""
    version = version_tuple(versions.get("deepspeed", ""))
    if not version:
        return Gap("deepspeed is not installed here: 600 s since 0.19.6, 1800 s before")
    return 600 if version >= DEEPSPEED_FIRST_WITH_10_MINUTES else 1800


def deepspeed_minutes(pg_s: int, versions: Mapping[str, str]) -> int:
    """Return the value of DEEPSPEED_TIMEOUT in minutes, for the timeout `pg_s` in seconds.

    The value is never below DeepSpeed's default timeout.
    """
    default_s = deepspeed_default_s(versions)
    return minutes_up(max(pg_s, 1800 if isinstance(default_s, Gap) else default_s))


def _torch(version: str, training_s: int, pg_s: int) -> tuple[int, str]:
    """Return torch's default timeout for NCCL in seconds, and a note.

    The note is about the timeout of other process groups, and about changes of the timeout during a run.
    """
    known = version_tuple(version)
    default_s = 1800 if known and known < FIRST_WITH_10_MINUTES else 600
    later = "..." if training_s == pg_s else f"timedelta(seconds={training_s})"
    private = (
        f"; during the run: dist.distributed_c10d._set_pg_timeout({later})" if known >= FIRST_WITH_PRIVATE_ONE else ""
    )
    later = f"; during the run: dist.set_timeout({later})" if known >= FIRST_WITH_SET_TIMEOUT else private
    return default_s, f"dist.new_group() does not inherit the timeout, so pass timeout= to each call{later}"


def _absorbs(default_s: int | Gap, timings: Timings, factor: int) -> int | Gap:
    if isinstance(timings.write_one_bytes_per_s, Gap):
        return timings.write_one_bytes_per_s
    if isinstance(default_s, Gap):
        return default_s
    return int(absorbed_bytes(default_s, factor, timings))


def timeout_env(safe: SafeTimeout, versions: Mapping[str, str], dialect: str) -> tuple[tuple[str, str], ...]:
    """Return the environment variables that set the timeouts.

    If `dialect` is "nccl", the result also has the variables of torch's flight recorder.
    """
    # `dialect` is the library whose variables the backend reads.
    own = (
        (PG_TIMEOUT, str(safe.pg_timeout_s)),
        (INIT_TIMEOUT, str(safe.init_timeout_s)),
        (DEEPSPEED, str(deepspeed_minutes(safe.pg_timeout_s, versions))),
    )
    return own + (flight_recorder_env(versions.get("torch", "")) if dialect == "nccl" else ())


def flight_recorder_env(torch_version: str) -> tuple[tuple[str, str], ...]:
    """Return the variables that enable the flight recorder in `torch_version`.

    The result is () if the recorder is on by default or missing. See docs/dev/nccl-facts.md, section 4.2.
    """
    version = version_tuple(torch_version)[:2]
    if not FIRST_WITH_RECORDER <= version < FIRST_THAT_RECORDS:
        return ()
    name = "TORCH_NCCL_TRACE_BUFFER_SIZE" if version < FIRST_WITH_NEW_NAME else "TORCH_FR_BUFFER_SIZE"
    dump = (("TORCH_NCCL_DUMP_ON_TIMEOUT", "1"),) if version < FIRST_WITH_DUMP else ()
    return ((name, RECORDED_CALLS), *dump)
