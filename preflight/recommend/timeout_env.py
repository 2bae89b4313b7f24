"""The timeouts and the flight recorder as variables to source: none of them changes what NCCL or gloo does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from preflight.model.advice import Advice
from preflight.model.timeout import SafeTimeout
from preflight.model.version import version_tuple
from preflight.recommend.frameworks import deepspeed_minutes

PG_TIMEOUT = "PREFLIGHT_PG_TIMEOUT_S"
INIT_TIMEOUT = "PREFLIGHT_INIT_TIMEOUT_S"
DEEPSPEED = "DEEPSPEED_TIMEOUT"
RECORDED_CALLS = "2000"  # torch's own default from 2.11 on
FIRST_WITH_RECORDER, FIRST_WITH_DUMP, FIRST_WITH_NEW_NAME, FIRST_THAT_RECORDS = (2, 2), (2, 7), (2, 8), (2, 11)


def with_timeouts(advice: Advice, safe: SafeTimeout, versions: Mapping[str, str], dialect: str) -> Advice:
    """Return the advice with its timeouts; `dialect` tells whether NCCL is there for torch to record."""
    return replace(
        advice,
        pg_timeout_s=safe.pg_timeout_s,
        init_timeout_s=safe.init_timeout_s,
        timeout_env=timeout_env(safe, versions, dialect),
        timeout_reason=safe.verdict,
    )


def timeout_env(safe: SafeTimeout, versions: Mapping[str, str], dialect: str) -> tuple[tuple[str, str], ...]:
    """Return what to export.

    TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC is not among it: it ends a process whose watchdog is stuck, however long its
    collectives may take.
    """
    own = (
        (PG_TIMEOUT, str(safe.pg_timeout_s)),
        (INIT_TIMEOUT, str(safe.init_timeout_s)),
        (DEEPSPEED, str(deepspeed_minutes(safe.pg_timeout_s, versions))),
    )
    return own + (flight_recorder_env(versions.get("torch", "")) if dialect == "nccl" else ())


def flight_recorder_env(torch_version: str) -> tuple[tuple[str, str], ...]:
    """Return what makes this torch record its last collectives, where it does not by itself (facts 4.2)."""
    version = version_tuple(torch_version)[:2]
    if not FIRST_WITH_RECORDER <= version < FIRST_THAT_RECORDS:
        return ()
    name = "TORCH_NCCL_TRACE_BUFFER_SIZE" if version < FIRST_WITH_NEW_NAME else "TORCH_FR_BUFFER_SIZE"
    dump = (("TORCH_NCCL_DUMP_ON_TIMEOUT", "1"),) if version < FIRST_WITH_DUMP else ()
    return ((name, RECORDED_CALLS), *dump)
