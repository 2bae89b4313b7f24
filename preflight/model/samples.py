"""Compute the result of a collective from the raw timings of all ranks."""
# The ranks send their timings as base64 text with 4 bytes per timing. JSON numbers would be slow for thousands of
# ranks.

from __future__ import annotations

import base64
import binascii
import bisect
import math
import statistics
import sys
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from preflight.errors import MalformedInput
from preflight.model.collective import Collective, algbw_gb_s, busbw_gb_s
from preflight.model.gap import Gap
from preflight.model.run_spec import RankSamples
from preflight.model.trial import NOT_MEASURED, CollectiveResult, RankTime

MISFIT = "samples of a rank that don't fit together, or are no numbers"


@dataclass(frozen=True, slots=True)
class Verification:
    """The result of verifying the data of one collective at one size on all ranks."""

    wrong_elements: int
    verified_calls: int  # of the repetitions, on every rank


def aggregate(
    collective: Collective,
    size_bytes: int,
    ranks: Sequence[RankSamples],
    took_s: float | Gap = NOT_MEASURED,
) -> CollectiveResult:
    """Return the result of `collective`, computed from the samples of all ranks.

    `took_s` is the duration of the entire step in seconds.
    """
    proof = Verification(sum(rank.wrong_elements for rank in ranks), min(rank.verified_calls for rank in ranks))
    return result_of(collective, size_bytes, len(ranks), slowest_rank_us(ranks), proof, rank_times(ranks), took_s)


def result_of(
    collective: Collective,
    size_bytes: int,
    world_size: int,
    slowest_us: Sequence[float],
    proof: Verification,
    ranks: tuple[RankTime, ...],
    took_s: float | Gap,
) -> CollectiveResult:
    """Return the result of a collective, computed from the slowest rank's time in each repetition.

    `slowest_us` has one time in microseconds per repetition. `took_s` is the duration of the entire step in seconds.
    """
    # `proof` is the result of the verification.
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
        verified=proof.wrong_elements == 0,
        wrong_elements=proof.wrong_elements,
        ranks=ranks,
        p99_us=percentile(slowest_us, 0.99),
        took_s=took_s,
        verified_calls=proof.verified_calls,
    )


def slowest_rank_us(ranks: Sequence[RankSamples]) -> tuple[float, ...]:
    """Return the slowest rank's time in µs for each repetition."""
    return tuple(max(times) for times in zip(*(rank.call_us for rank in ranks), strict=True))


def percentile(values: Sequence[float], fraction: float) -> float:
    """Return a percentile of `values` by the nearest-rank method. `fraction` is between 0 and 1."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(fraction * len(ordered)) - 1)]


def rank_times(ranks: Sequence[RankSamples]) -> tuple[RankTime, ...]:
    """Return the median time and the slowdown of each rank in the collective, in rank order.

    A rank's time leaves out the time that the rank waits for other ranks.
    """
    # All ranks wait for the slowest rank, so the duration of a rank's call says little. Instead, a rank's time is the
    # sum of the shortest call of any rank, the rank's own pause before the call, and the rank's lateness at the next
    # barrier. The lateness at a barrier is the longest wait of any rank minus the rank's own wait. The clocks of
    # different ranks are never compared.
    by_kind = ([each.call_us for each in ranks], [each.gap_us for each in ranks], [each.barrier_us for each in ranks])
    calls, gaps, barriers = (list(zip(*each, strict=True)) for each in by_kind)
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


def slowdowns(values: Sequence[float]) -> list[float]:
    """Return each value divided by the median of the other values."""
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


def pack_samples(samples: RankSamples) -> dict[str, Any]:
    """Return the samples of a rank as a JSON object. Each timing keeps seven significant digits."""
    times = array("f", (*samples.barrier_us, *samples.call_us, *samples.gap_us))
    packed = base64.b64encode(_little_endian(times).tobytes()).decode()
    proof = {"wrong_elements": samples.wrong_elements, "verified_calls": samples.verified_calls}
    return {"rank": samples.rank, **proof, "is_spread": samples.is_spread, "times": packed}


def unpack_samples(value: Any) -> RankSamples:
    """Return the samples in a JSON object. Raise MalformedInput if the object can't be read."""
    values = tuple(timings(value))
    count, rest = divmod(len(values), 3)
    if rest or not math.isfinite(sum(values)):
        raise MalformedInput(MISFIT)
    barrier_us, call_us, gap_us = values[:count], values[count : 2 * count], values[2 * count :]
    wrong, verified = wrong_elements(value), verified_calls(value)
    return RankSamples(rank_of(value), barrier_us, call_us, gap_us, wrong, verified, is_spread(value))


def timings(value: Any) -> array[float]:
    """Return the times in µs in a rank's packed samples: first the barriers, then the calls, then the pauses.

    Raise MalformedInput if the times can't be read.
    """
    times = array("f")
    try:
        times.frombytes(binascii.a2b_base64(value["times"]))
    except (KeyError, TypeError, ValueError) as error:
        raise MalformedInput(f"samples of a rank that can't be read: {error}") from None
    return _little_endian(times)


def rank_of(value: Any) -> int:
    """Return the rank number in a rank's packed samples."""
    return _whole(value, "rank")


def wrong_elements(value: Any) -> int:
    """Return the number of wrong elements in a rank's packed samples, without unpacking the timings."""
    return _whole(value, "wrong_elements")


def verified_calls(value: Any) -> int:
    """Return the number of verified repetitions in a rank's packed samples, without unpacking the timings."""
    return _whole(value, "verified_calls")


def is_spread(value: Any) -> bool:
    """Return whether the wrong elements that a rank received may have been corrupted on another rank."""
    return isinstance(value, dict) and value.get("is_spread") is True


def _whole(value: Any, name: str) -> int:
    found = value.get(name) if isinstance(value, dict) else None
    if not isinstance(found, int):
        raise MalformedInput(f"samples of a rank without {name}")
    return found


def _little_endian(times: array[float]) -> array[float]:
    if sys.byteorder == "big":
        times.byteswap()
    return times
