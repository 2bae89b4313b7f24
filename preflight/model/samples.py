"""From the ranks' raw timings to one result: the slowest rank per repetition, and each rank's own share."""

from __future__ import annotations

import bisect
import math
import statistics
from collections.abc import Sequence

from preflight.model.collective import Collective, algbw_gb_s, busbw_gb_s
from preflight.model.gap import Gap
from preflight.model.run import RankSamples
from preflight.model.trial import NOT_MEASURED, CollectiveResult, RankTime


def aggregate(
    collective: Collective,
    size_bytes: int,
    ranks: Sequence[RankSamples],
    took_s: float | Gap = NOT_MEASURED,
) -> CollectiveResult:
    """Return the result over all ranks' samples; `took_s` is all that the step took."""
    wrong = sum(rank.wrong_elements for rank in ranks)
    return result_of(collective, size_bytes, len(ranks), slowest_rank_us(ranks), wrong, rank_times(ranks), took_s)


def result_of(
    collective: Collective,
    size_bytes: int,
    world_size: int,
    slowest_us: Sequence[float],
    wrong: int,
    ranks: tuple[RankTime, ...],
    took_s: float | Gap,
) -> CollectiveResult:
    """Return the result of repetitions, each of which takes as long as its slowest rank.

    So nccl-tests and every training step see it.
    """
    median_us = statistics.median(slowest_us)
    p95_us = percentile(slowest_us, 0.95)
    return CollectiveResult(
        collective=collective,
        size_bytes=size_bytes,
        repetitions=len(slowest_us),
        min_us=min(slowest_us),
        median_us=median_us,
        p95_us=p95_us,
        spread=(p95_us - min(slowest_us)) / median_us,
        algbw_gb_s=algbw_gb_s(size_bytes, median_us / 1e6),
        busbw_gb_s=busbw_gb_s(collective, size_bytes, median_us / 1e6, world_size),
        verified=wrong == 0,
        wrong_elements=wrong,
        ranks=ranks,
        p99_us=percentile(slowest_us, 0.99),
        took_s=took_s,
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
    calls, gaps, barriers = (list(zip(*each, strict=True)) for each in _by_kind(ranks))
    own: list[list[float]] = []
    for i, (call_us, gap_us) in enumerate(zip(calls, gaps, strict=True)):
        shared_us = min(call_us)
        # The wait after call i is the barrier of repetition i + 1; the last repetition has none.
        if i + 1 < len(barriers):
            most_us = shared_us + max(barriers[i + 1])
            own.append([most_us + gap - wait for gap, wait in zip(gap_us, barriers[i + 1], strict=True)])
        else:
            own.append([shared_us + gap for gap in gap_us])
    medians = [statistics.median(values[:-1] or values) for values in zip(*own, strict=True)]
    times = zip(ranks, medians, slowdowns(medians), strict=True)
    return tuple(sorted((RankTime(rank.rank, own_us, slow) for rank, own_us, slow in times), key=lambda t: t.rank))


def _by_kind(ranks: Sequence[RankSamples]) -> tuple[list[tuple[float, ...]], ...]:
    return [rank.call_us for rank in ranks], [rank.gap_us for rank in ranks], [rank.barrier_us for rank in ranks]


def slowdowns(values: Sequence[float]) -> list[float]:
    """Return each value over the median of the others; sorted once, since there may be thousands."""
    if len(values) < 2:
        return [1.0] * len(values)
    ordered = sorted(values)
    middle, is_odd = divmod(len(values) - 1, 2)  # of the others; an odd number of them has one middle
    found = []
    for value in values:
        place = bisect.bisect_left(ordered, value)
        upper = ordered[middle + (place <= middle)]
        lower = upper if is_odd else ordered[middle - 1 + (place <= middle - 1)]
        reference = (lower + upper) / 2
        found.append(value / reference if reference > 0 else 1.0)
    return found
