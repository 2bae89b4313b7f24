"""What the answer depends on where no storage was measured: the same sum for a fast local disk and for a slow share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from preflight.model.gap import Gap
from preflight.model.job import Job
from preflight.model.timeout import Timings
from preflight.model.units import decimal_text
from preflight.timeout.pauses import ASSUMED_WRITE_BYTES_PER_S
from preflight.timeout.safe_timeout import safe_timeout

LOCAL_BYTES_PER_S = 2e9  # one NVMe drive, in round numbers


def storage_range(job: Job, timings: Timings, versions: Mapping[str, str]) -> str:
    """Return the answers for both kinds of storage; "" where it was measured, or makes no difference."""
    if job.params is None or not isinstance(timings.write_one_bytes_per_s, Gap):
        return ""
    local = replace(
        timings, write_one_bytes_per_s=LOCAL_BYTES_PER_S, read_one_bytes_per_s=LOCAL_BYTES_PER_S,
        write_all_bytes_per_s=LOCAL_BYTES_PER_S * job.assumed_nodes, directory="a local disk",
    )  # fmt: skip
    fast, slow = (safe_timeout(job, each, None, versions) for each in (local, timings))
    if fast.pg_timeout_s == slow.pg_timeout_s:
        return ""
    slow_s = f"{slow.pg_timeout_s:,} s" if slow.is_enough else f"more than {slow.cap_s:,} s"
    return (
        f"{fast.pg_timeout_s:,} s on a local NVMe ({decimal_text(LOCAL_BYTES_PER_S)}/s), {slow_s} on a slow share "
        f"({decimal_text(ASSUMED_WRITE_BYTES_PER_S)}/s): --checkpoint-dir DIR measures yours"
    )
