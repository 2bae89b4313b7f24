"""Find a rank that is late at every message size that is used for comparisons. The functions do no I/O."""

from __future__ import annotations

from dataclasses import dataclass

from preflight.model.bound import JUDGMENT, Bound
from preflight.model.collective import Collective
from preflight.model.trial import CollectiveResult, RankTime, TrialResult

LATE_ABOVE = Bound(
    1.2, "times the time that the other ranks need without waiting, at both sizes",
    "on healthy nodes, no rank is later than the others by this factor at every size",
    JUDGMENT,
    "too low: noise causes a repetition and a warning; too high: a late rank passes",
)  # fmt: skip
SMALLEST_JUDGED_BYTES = 64 << 10  # below it latency noise decides
GPU_DECISION_BYTES = 32 << 20
# A scheduler's whim on a busy CPU costs a time slice; a GPU's collective of 32 MiB takes no longer than this in all.
LEAST_LATENESS_CPU_US = Bound(
    200.0, "µs later than the others, on CPUs",
    "a smaller delay may be one time slice of the scheduler",
    JUDGMENT,
    "too low: the check warns about a busy machine; too high: a late rank passes",
)  # fmt: skip
LEAST_LATENESS_GPU_US = Bound(
    20.0, "µs later than the others, on GPUs",
    "a smaller delay may be the jitter of kernel launches",
    JUDGMENT,
    "too low: the check warns about a healthy rank; too high: a late rank passes",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Late:
    """The latest rank in one collective, and the time that the rank takes without waiting for other ranks."""

    result: CollectiveResult
    time: RankTime

    @property
    def others_us(self) -> float:
        """Return the median time in µs that the other ranks take without waiting."""
        # The median is computed from the slowdown of the late rank, because `result.ranks` may not have all ranks.
        return self.time.own_us / self.time.slowdown if self.time.slowdown else 0.0


def late_rank(trial: TrialResult, on_gpus: bool) -> tuple[Late, ...]:
    """Return the times of the rank that is late at every size used for comparisons.

    If no rank is late at every size, return ().
    """
    results = decision_results(trial, on_gpus)
    if not results or any(len(result.ranks) < 2 for result in results):
        return ()
    found = tuple(Late(result, max(result.ranks, key=lambda rank: rank.slowdown)) for result in results)
    least_us = LEAST_LATENESS_GPU_US.value if on_gpus else LEAST_LATENESS_CPU_US.value
    is_late = all(
        each.time.slowdown > LATE_ABOVE.value and each.time.own_us - each.others_us >= least_us for each in found
    )
    return found if is_late and len({each.time.rank for each in found}) == 1 else ()


def decision_results(trial: TrialResult, on_gpus: bool) -> list[CollectiveResult]:
    """Return the results of `trial` at the sizes that are used for comparisons."""
    # On GPUs, the sizes for comparisons are 32 MiB and the largest size. On the CPU, the sizes are the two largest
    # sizes. Sizes below 64 KiB are never used.
    chosen: list[CollectiveResult] = []
    for collective in (Collective.ALL_REDUCE, Collective.ALL_GATHER):
        results = sorted((r for r in trial.results if r.collective is collective), key=lambda r: r.size_bytes)
        # all_gather rounds its size to a whole number per rank, so the size is only near the requested one.
        near = [r for r in results if abs(r.size_bytes - GPU_DECISION_BYTES) < GPU_DECISION_BYTES / 20]
        of_it = [*near, *results[-1:]] if on_gpus else results[-2:]
        chosen.extend(r for i, r in enumerate(of_it) if r.size_bytes >= SMALLEST_JUDGED_BYTES and r not in of_it[:i])
    return chosen
