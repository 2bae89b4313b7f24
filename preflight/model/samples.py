"""From the ranks' raw timings to one result: the slowest rank per repetition, and each rank's own share."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from preflight.model.collective import Collective, algbw_gb_s, busbw_gb_s
from preflight.model.run import RankSamples
from preflight.model.trial import CollectiveResult, RankTime


def aggregate(collective: Collective, size_bytes: int, ranks: Sequence[RankSamples]) -> CollectiveResult:
    """Return the result over all ranks' samples.

    A repetition takes as long as its slowest rank, as nccl-tests and every training step see it.
    """
    slowest_us = slowest_rank_us(ranks)
    median_us = statistics.median(slowest_us)
    p95_us = percentile(slowest_us, 0.95)
    wrong = sum(rank.wrong_elements for rank in ranks)
    return CollectiveResult(
        collective=collective,
        size_bytes=size_bytes,
        repetitions=len(slowest_us),
        min_us=min(slowest_us),
        median_us=median_us,
        p95_us=p95_us,
        spread=(p95_us - min(slowest_us)) / median_us,
        algbw_gb_s=algbw_gb_s(size_bytes, median_us / 1e6),
        busbw_gb_s=busbw_gb_s(collective, size_bytes, median_us / 1e6, len(ranks)),
        verified=wrong == 0,
        wrong_elements=wrong,
        ranks=rank_times(ranks),
        p99_us=percentile(slowest_us, 0.99),
    )


def slowest_rank_us(ranks: Sequence[RankSamples]) -> tuple[float, ...]:
    """Return the maximum over the ranks for each repetition."""
    return tuple(max(times) for times in zip(*(rank.call_us for rank in ranks), strict=True))


def percentile(values: Sequence[float], fraction: float) -> float:
    """Return the nearest-rank percentile: always a value that was measured."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(fraction * len(ordered)) - 1)]


def rank_times(ranks: Sequence[RankSamples]) -> tuple[RankTime, ...]:
    """Return each rank's own share of the collective, in rank order.

    All ranks wait for the slowest, so how long a call takes on a rank says little. What a rank adds itself is

        the shortest call of any rank                (the work that all share)
      + its own pause between barrier and call       (it enters late, the others' calls grow)
      + its lateness at the next barrier             (it leaves late, the others wait there)

    No clocks of different ranks are compared: lateness at a barrier is by how much a rank waits less than the longest.
    """
    repetitions = len(ranks[0].call_us)
    own: dict[int, list[float]] = {rank.rank: [] for rank in ranks}
    for i in range(repetitions):
        shared_us = min(rank.call_us[i] for rank in ranks)
        # The wait after call i is the barrier of repetition i + 1; the last repetition has none.
        waits = {rank.rank: rank.barrier_us[i + 1] for rank in ranks} if i + 1 < repetitions else {}
        longest_us = max(waits.values(), default=0.0)
        for rank in ranks:
            lateness_us = longest_us - waits[rank.rank] if waits else 0.0
            own[rank.rank].append(shared_us + rank.gap_us[i] + lateness_us)
    medians = {rank: statistics.median(values[:-1] or values) for rank, values in own.items()}
    return tuple(RankTime(rank, own_us, _slowdown(rank, medians)) for rank, own_us in sorted(medians.items()))


def _slowdown(rank: int, own_us: dict[int, float]) -> float:
    others = [value for other, value in own_us.items() if other != rank]
    reference_us = statistics.median(others) if others else own_us[rank]
    return own_us[rank] / reference_us if reference_us > 0 else 1.0
