"""Hold the timeout of 17 jobs that were published or are common against the pause that each of them has.

The pause is bytes by bandwidth as the operators give them, without any of preflight's formulas. A timeout must not be
below it, and at most five times above it or at the minimum. `measured` is what a directory gives to one rank and to a
node's ranks together, in GB/s; None: nothing was measured.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from preflight.model.job import Job, ParamCount, Save, Strategy
from preflight.model.storage import StorageSpeed
from preflight.model.timeout import Timings
from preflight.timeout.safe_timeout import CAP_S, FLOOR_S, safe_timeout
from preflight.timeout.timings import timings

BILLION = 10**9
MOST_ABOVE = 5


@dataclass(frozen=True, slots=True)
class Known:
    """One job: how many parameters and ranks, how it is saved, what its directory gives, and its longest pause."""

    name: str
    billions: float
    ranks: int
    strategy: Strategy
    save: Save
    measured: tuple[float, float] | None
    pause_s: float
    lora_share: float | None = None
    preprocess_s: float = 0.0


F, S, A = Save.FULL, Save.SHARDED, Save.ASYNC
FSDP, DDP, ZERO1, ZERO2, ZERO3 = Strategy.FSDP, Strategy.DDP, Strategy.ZERO1, Strategy.ZERO2, Strategy.ZERO3
JOBS = (
    Known("Llama 3 405B, Tectonic 2 TB/s", 405, 16384, FSDP, S, (2, 2000), 30.0),
    Known("Llama 3 405B, not measured", 405, 16384, FSDP, S, None, 30.0),
    Known("Llama 3.1 405B, asynchronous, Lustre 20 GB/s", 405, 512, FSDP, A, (2, 20), 41.0),
    Known("DeepSeek-V3 671B, 3FS 100 GB/s", 671, 2048, ZERO1, S, (4, 100), 94.0),
    Known("DeepSeek-V3 671B, not measured", 671, 2048, ZERO1, S, None, 94.0),
    Known("Qwen2.5 72B, full, NFS 1 GB/s", 72.7, 64, FSDP, F, (1, 1), 1018.0),
    Known("Qwen2.5 72B, sharded, Lustre 20 GB/s", 72.7, 64, FSDP, S, (2, 20), 51.0),
    Known("Qwen2.5 72B, ZeRO-3, gathered, NFS 1 GB/s", 72.7, 64, ZERO3, F, (1, 1), 1018.0),
    Known("Llama 2 70B, object store 5 GB/s", 70, 128, FSDP, S, (1, 5), 196.0),
    Known("7B, full, NVMe 2 GB/s", 7, 8, FSDP, F, (2, 4), 98.0),
    Known("7B, DDP, NFS 1 GB/s", 7, 8, DDP, F, (1, 1), 98.0),
    Known("7B, ZeRO-2, busy share 0.2 GB/s", 7, 8, ZERO2, F, (0.2, 0.2), 490.0),
    Known("7B, LoRA 0.5%, NFS 1 GB/s", 7, 8, DDP, F, (1, 1), 14.0, lora_share=0.005),
    Known("70B, LoRA 0.5%, not measured", 70, 8, FSDP, F, None, 140.0, lora_share=0.005),
    Known("BERT 340M, not measured", 0.34, 4, DDP, F, None, 5.0),
    Known("BLOOM 176B, 2.3 TB in 40 s by its own log", 176, 384, ZERO1, S, (2, 57), 40.0),
    Known("MPT 30B, 40 minutes of preprocessing", 30, 256, FSDP, S, (1, 5), 2400.0, preprocess_s=2400.0),
)  # fmt: skip


def study(is_small: bool) -> Iterator[tuple[str, bool]]:
    """Yield for each job its pause and its timeouts, and whether they suit each other; then fast and slow storage."""
    yield f"{'job':<46}{'pause s':>9}{'start s':>9}{'then s':>8}", True
    for each in JOBS[:5] if is_small else JOBS:
        safe = safe_timeout(job_of(each), measured(each.measured))
        most_s = max(FLOOR_S, MOST_ABOVE * each.pause_s)
        # What is not measured may be longer than it is: the page gives both ends and says what measures it.
        is_kept = safe.pg_timeout_s >= each.pause_s and (
            safe.training_timeout_s <= max(most_s, safe.floor_s) or each.measured is None
        )
        row = f"{each.name:<46}{each.pause_s:>9.0f}{safe.init_timeout_s:>9}{safe.training_timeout_s:>8}"
        yield row, is_kept and safe.pg_timeout_s <= CAP_S
    for each in JOBS:
        speeds = [None, (0.2, 0.2), (1.0, 2.0), (2.0, 16.0), (5.0, 100.0), (20.0, 2000.0)]
        found = [safe_timeout(job_of(each), measured(pair)) for pair in speeds]
        falls = all(a.pg_timeout_s >= b.pg_timeout_s for a, b in itertools.pairwise(found))
        if not falls:
            yield f"{each.name}: faster storage gives a longer timeout", False
    yield f"faster storage gave a longer timeout to none of {len(JOBS)} jobs", True


def job_of(known: Known) -> Job:
    """Return the job as a user describes it."""
    count = int(known.billions * BILLION)
    return Job(
        ParamCount(count, count), strategy=known.strategy, save=known.save, world_size=known.ranks,
        lora_share=known.lora_share, preprocess_s=known.preprocess_s,
    )  # fmt: skip


def measured(speeds: tuple[float, float] | None) -> Timings:
    """Return the timings of a machine of which only storage was measured, if that."""
    if speeds is None:
        return timings(None, 0, None, {})
    one, together = (each * BILLION for each in speeds)
    return timings(None, 0, StorageSpeed("/ckpt", 8, 1 << 30, one, together, one, together, 5.0), {})
