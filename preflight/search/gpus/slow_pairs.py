"""Find pairs of GPUs that copy slower than their links allow, or slower than similar pairs.

The functions do no I/O.
"""
# Over NVLink, 88% of the rate is usual (H200: 396 of 450 GB/s). Over PCIe, a host bridge between the GPUs may halve the
# rate, so only similar pairs are compared.

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from preflight.model.bound import JUDGMENT, Bound
from preflight.model.gap import Gap
from preflight.model.gpu_test import CopyBy, Direction, PairLimit, PairTruth
from preflight.model.units import rate_text
from preflight.search.gpus.locality import NVLINK

NVLINK_WARN_BELOW = Bound(
    0.60, "of the NVLink rate of the pair; a slower pair is a WARN",
    "healthy pairs reach about 88% (H200: 396 of 450 GB/s)",
    "tests/search/gpus/test_published_results.py",
    "too high: healthy hardware is blamed; too low: slow hardware passes",
)  # fmt: skip
NVLINK_FAIL_BELOW = Bound(
    0.30, "of the NVLink rate of the pair; a slower pair is a FAIL",
    "this is half of the share for a WARN; most links of such a pair are down",
    JUDGMENT,
    "too high: healthy hardware is blamed; too low: slow hardware passes",
)  # fmt: skip
SIBLING_WARN_BELOW = Bound(
    0.70, "of the median of the other pairs with the same kind of path; a slower pair is a WARN",
    "over PCIe, a host bridge may halve the speed, so pairs with different paths are not compared",
    JUDGMENT,
    "too high: healthy hardware is blamed; too low: slow hardware passes",
)  # fmt: skip
Pair = tuple[int, int]


@dataclass(frozen=True, slots=True)
class PairTime:
    """The copy speed of a pair of GPUs in the slower direction: the best of several measurements."""

    gb_s: float
    times: int


@dataclass(frozen=True, slots=True)
class SlowPair:
    """A pair of GPUs that copies slower than its links allow, or slower than similar pairs."""

    pair: Pair
    time: PairTime
    limit: PairLimit
    over_nvlink: bool
    is_far_below: bool
    usual: str


def pair_times(pairs: Sequence[PairTruth]) -> dict[Pair, PairTime]:
    """Return the copy speed of each pair of GPUs with peer access, in the slower direction.

    Only copies by the copy engine count.
    """
    found: dict[tuple[Pair, Direction], list[float]] = defaultdict(list)
    for each in pairs:
        for speed in each.speeds:
            one_way = speed.by is CopyBy.COPY_ENGINE and speed.direction is not Direction.BOTH
            if one_way and not isinstance(speed.gb_s, Gap) and each.cuda is not False:
                found[(each.a, each.b), speed.direction].append(speed.gb_s)
    ways: dict[Pair, list[PairTime]] = defaultdict(list)
    for (pair, _), speeds in found.items():
        ways[pair].append(PairTime(max(speeds), len(speeds)))
    return {pair: min(of_it, key=lambda each: each.gb_s) for pair, of_it in ways.items()}


def slow_pairs(times: Mapping[Pair, PairTime], limits: Sequence[PairLimit]) -> list[SlowPair]:
    """Return the pairs in `times` that are too slow, the slowest pair first.

    A pair without a limit in `limits` is not judged.
    """
    # A pair is too slow if its speed is clearly below its NVLink rate, or clearly below the median of similar pairs.
    by_pair = {(limit.a, limit.b): limit for limit in limits}
    levels: dict[str, list[Pair]] = defaultdict(list)
    for pair in times.keys() & by_pair.keys():
        levels[by_pair[pair].level].append(pair)
    slow = []
    for pair, time in times.items():
        limit = by_pair.get(pair)
        if limit is None:
            continue
        others = [times[other].gb_s for other in levels[limit.level] if other != pair]
        over_nvlink = NVLINK.fullmatch(limit.level) is not None
        if over_nvlink and time.gb_s < NVLINK_WARN_BELOW.value * limit.gb_s:
            is_far = time.gb_s < NVLINK_FAIL_BELOW.value * limit.gb_s
            usual = f"its links carry {limit.gb_s:.0f} GB/s one way"
        elif len(others) > 1 and time.gb_s < SIBLING_WARN_BELOW.value * median(others):
            is_far, usual = False, f"pairs that are joined alike ({limit.level}) reach {rate_text(median(others))}"
        else:
            continue
        slow.append(SlowPair(pair, time, limit, over_nvlink, is_far, usual))
    return sorted(slow, key=lambda each: each.time.gb_s)
