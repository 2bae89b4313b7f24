"""The environment variables that a test run sets, and the inherited variables that a test run removes."""

from __future__ import annotations

import re
from collections.abc import Mapping

from preflight.model.trial import AS_IS, Candidate, Scope, Setting

# These describe the machine and are no tuning: they stay in every trial.
KEPT = ("NCCL_NET_PLUGIN", "NCCL_TUNER_PLUGIN", "NCCL_TOPO_FILE", "NCCL_CONF_FILE")
# They print; they don't change what happens.
DIAGNOSTIC = (
    "NCCL_DEBUG", "NCCL_DEBUG_SUBSYS", "NCCL_DEBUG_FILE", "NCCL_RUN_DIAGNOSTICS", "NCCL_RUN_RAS_DIAGNOSTICS",
)  # fmt: skip
TUNING_PREFIXES = ("NCCL_", "GLOO_", "TORCH_NCCL_", "TORCH_GLOO_", "TP_")
DEBUG_LEVELS = ("OFF", "INFO", "DETAIL")  # torch/csrc/distributed/c10d/debug.cpp
TUNING_NAMES = ("TORCH_DISTRIBUTED_DEBUG",)
# What gloo and the code around it read: with another backend's variables a gloo trial would prove nothing.
READ_BY_GLOO = ("GLOO_", "TORCH_GLOO_", "TP_", "TORCH_DISTRIBUTED_DEBUG")

# NCCL: a log per rank is the evidence; its RAS port is one per host and may answer for another job (facts 1.5). NET has
# the lines of a RoCE address that does not answer, which NCCL asks for a minute before it says a word of it elsewhere.
# torch: its watchdog stays, for NCCL's asynchronous errors, but must not dump for 15 to 60 s (facts 4.2, 10.4). A hang
# raises by the rank's own deadline (trial/rank/measure.py): with TORCH_NCCL_BLOCKING_WAIT=1 nobody raises from torch
# 2.8 on.
NCCL_TRIAL_ENV = (
    ("NCCL_DEBUG", "INFO"),
    ("NCCL_DEBUG_SUBSYS", "INIT,BOOTSTRAP,ENV,NET"),
    ("NCCL_RAS_ENABLE", "0"),
    ("TORCH_NCCL_DUMP_ON_TIMEOUT", "0"),
    ("TORCH_NCCL_ENABLE_MONITORING", "0"),
    ("TORCH_NCCL_USE_COMM_NONBLOCKING", "0"),  # torch 2.5 and 2.6 turn it on where a group knows its device
)

# Lines of its own for every call: they cost time, so this trial's speeds count for nothing.
ALGORITHMS = Candidate(
    "algorithms",
    (("NCCL_DEBUG_SUBSYS", "INIT,BOOTSTRAP,ENV,TUNING"),),
    "the default again, untimed, to see which algorithm NCCL takes by size",
    Scope.ANYWHERE,
)

# NCCL 2.31 and later tests its own paths when it starts. RAS has a port of its own here, so that a job that starts
# meanwhile gets the usual one.
DIAGNOSIS = Candidate(
    "nccl-diagnosis",
    (
        ("NCCL_RUN_DIAGNOSTICS", "1"), ("NCCL_RUN_RAS_DIAGNOSTICS", "1"), ("NCCL_RAS_ENABLE", "1"),
        ("NCCL_RAS_ADDR", "localhost:28037"),
    ),
    "NCCL's own diagnosis, untimed",
    Scope.ANYWHERE,
)  # fmt: skip


# What a `.env` of ours holds beside tuning: which GPUs, the timeouts, torch's record of collectives.
OWN_NAMES = (
    "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "PREFLIGHT_PG_TIMEOUT_S", "PREFLIGHT_INIT_TIMEOUT_S",
    "DEEPSPEED_TIMEOUT", "TORCH_FR_BUFFER_SIZE",
)  # fmt: skip
# A library that is loaded, a file that is read or written: the search sets these to nothing and to no file of its own.
NAMES_A_FILE = re.compile(r"PLUGIN|FILE|PATH|PIPE|DIR|PKEY|CERT", re.ASCII)
TO_NOTHING = ("", "none", "/dev/null")


def may_be_recommended(name: str, value: str) -> bool:
    """Return whether a recommendation may set `name` to `value`, or unset `name` if `value` is empty."""
    # A user may have edited a report before preflight reads it again. An edited report must not choose which code a job
    # runs or what the job writes.
    if name in OWN_NAMES:
        return "/" not in value
    if not name.startswith(TUNING_PREFIXES) and name not in TUNING_NAMES:
        return False
    return value in TO_NOTHING or ("/" not in value and not NAMES_A_FILE.search(name))


def why_torch_would_end(environ: Mapping[str, str]) -> str:
    """Return a text if a variable in `environ` makes torch.distributed fail. Otherwise, return "".

    The text names the variable and the fix.
    """
    level = environ.get("TORCH_DISTRIBUTED_DEBUG")
    if level is None or level.upper() in DEBUG_LEVELS:
        return ""
    takes = "torch takes OFF, INFO or DETAIL and ends with an error otherwise"
    return f"TORCH_DISTRIBUTED_DEBUG is {level[:40]!r}: {takes}; unset it (the job would end the same way)"


def inherited_tuning(environ: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Return the variables in `environ` that tune communication, sorted by name."""
    tuning = {name for name in environ if name.startswith(TUNING_PREFIXES) or name in TUNING_NAMES}.difference(KEPT)
    return tuple(sorted((name, environ[name]) for name in tuning))


def matters(name: str, dialect: str) -> bool:
    """Return whether a backend may read the variable `name`. A variable that changes only the log does not count.

    `dialect` is "nccl" or "gloo", the library whose variables the backend reads.
    """
    return name not in DIAGNOSTIC and (dialect != "gloo" or name.startswith(READ_BY_GLOO))


def inherited_settings(inherited: tuple[tuple[str, str], ...], dialect: str) -> tuple[Setting, ...]:
    """Return a setting for each inherited variable that the backend reads, except variables that a test run sets.

    `dialect` is "nccl" or "gloo", the library whose variables the backend reads.
    """
    harness = dict(NCCL_TRIAL_ENV) if dialect == "nccl" else {}
    return tuple(
        Setting(name, ((name, value),), (), Scope.ANYWHERE)
        for name, value in inherited
        if matters(name, dialect) and name not in harness
    )


def trial_environment(
    candidate: Candidate, inherited: tuple[tuple[str, str], ...], dialect: str, debug_file: str
) -> tuple[tuple[tuple[str, str], ...], tuple[str, ...]]:
    """Return the variables that a test run of `candidate` sets, and the inherited variables that the test run removes.

    `debug_file` is the file for NCCL's log, if `dialect` is "nccl".
    """
    kept = dict(inherited) if candidate.name == AS_IS else {}
    harness = dict(NCCL_TRIAL_ENV) | {"NCCL_DEBUG_FILE": debug_file} if dialect == "nccl" else {}
    wanted = {**kept, **harness, **dict(candidate.env)}
    unset = tuple(name for name, _ in inherited if name not in wanted)
    return tuple(sorted(wanted.items())), unset
