"""Compare configurations with the default settings, and select a configuration to recommend.

Two process groups with the same settings may differ in speed by 5% for their entire life. The unit of evidence is
therefore a new pair of process groups. Alternating samples inside a pair only cancel drift.

The table has averages per 200 runs, from 10,000 runs of scripts/bench_decisions.py with 8 configurations, 5% noise
between groups, 10% noise within a group, and medians of 20 samples:

    pairs                      6      7      8     10     12
    false recommendations    0.7    0.7    0.7    0.6    0.5   (at most 2 are allowed)
    20% faster found        192    196    197    197    197   (at least 190)

Each configuration is first compared in one pair of process groups (a "heat"). Without the heats, the search misses the
best of eight configurations in 7 of 200 runs. Without the minimum gain for a comparison, twice as many runs recommend a
configuration falsely.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence

from preflight.model.bound import JUDGMENT, Bound
from preflight.model.collective import Collective
from preflight.model.facts import Gap
from preflight.model.run_spec import Duel, DuelTurn, Measure
from preflight.model.trial import AS_IS, DEFAULT, CollectiveResult, Outcome, TrialResult

DUEL_PAIRS = 8  # fresh pairs of process groups, both of a pair alive at once
DUEL_TURNS = 2  # per side and pair, in the order default, candidate, candidate, default
HEATS = 3  # the best candidates of the screening; each is compared with the default in one pair of its own
MIN_GAIN = 0.05  # a smaller gain is not worth one more setting to maintain
DECIDING = (Collective.ALL_REDUCE, Collective.ALL_GATHER)
BUCKET_BYTES = 32 << 20  # what DDP and FSDP send at a time
FAR_SLOWER = Bound(
    2.0, "times the time with default settings; a longer time is a WARN",
    "two process groups with equal settings differ by a few percent, so chance does not explain this factor",
    JUDGMENT,
    "too low: on a noisy machine, the check warns of harmless variables; too high: variables that cost speed get no "
    "warning",
)  # fmt: skip
SMALLEST_THAT_DECIDES_BYTES = 64 << 10  # below, latency and scheduling noise decide the time

Point = tuple[Collective, int]


def decision_sizes(sizes: Sequence[int], cpu_path: bool) -> tuple[int, ...]:
    """Return the sizes in bytes that are used for comparisons, in ascending order.

    Sizes below 64 KiB count only if there are no larger sizes.
    """
    # The sizes are the size nearest to 32 MiB and the largest size. If `cpu_path` is true, the sizes are the two
    # largest sizes.
    ordered = sorted(set(sizes))
    large = [size for size in ordered if size >= SMALLEST_THAT_DECIDES_BYTES] or ordered
    if cpu_path or not large:
        return tuple(large[-2:])
    bucket = min(large, key=lambda size: abs(math.log(max(size, 1) / BUCKET_BYTES)))
    return tuple(sorted({bucket, large[-1]}))


def decision_results(results: Sequence[CollectiveResult], cpu_path: bool) -> tuple[CollectiveResult, ...]:
    """Return the results at the sizes used for comparisons.

    The results are sorted by collective, with all_reduce first, and then by size.
    """
    chosen: list[CollectiveResult] = []
    for collective in DECIDING:
        same = sorted((each for each in results if each.collective is collective), key=lambda each: each.size_bytes)
        wanted = decision_sizes([each.size_bytes for each in same], cpu_path)
        chosen.extend(each for each in same if each.size_bytes in wanted)
    return tuple(chosen)


def point_gains(turns: Sequence[DuelTurn]) -> dict[int, dict[Point, float]]:
    """Return the mean of log(default time / configuration's time) for each pair, collective and size.

    A pair is a pair of process groups. If a mean is above 0, the configuration is faster.
    """
    logs: dict[int, dict[Point, list[float]]] = {}
    for turn in turns:
        ratio = turn.default_median_us / turn.candidate_median_us
        logs.setdefault(turn.pair, {}).setdefault((turn.collective, turn.size_bytes), []).append(math.log(ratio))
    return {
        pair: {point: math.fsum(values) / len(values) for point, values in points.items()}
        for pair, points in logs.items()
    }


def screening_gains(decisions: Sequence[Measure], results: Sequence[TrialResult]) -> dict[str, float]:
    """Return the mean logarithm of the speed gain over the default settings, for each configuration.

    The inherited environment, failed test runs and incomplete test runs are left out.
    """
    default = next((result for result in results if result.candidate == DEFAULT), None)
    if default is None or not is_sound(default):
        return {}
    base_us = _medians(decisions, default)
    gains = {}
    for result in results:
        if result.candidate in (DEFAULT, AS_IS) or not is_sound(result):
            continue
        times_us = _medians(decisions, result)
        if base_us and times_us.keys() == base_us.keys():
            gains[result.candidate] = statistics.fmean(math.log(base_us[p] / times_us[p]) for p in base_us)
    return gains


def is_sound(result: TrialResult) -> bool:
    """Return whether a test run worked and all of its results were right."""
    return result.outcome is Outcome.OK and bool(result.results) and all(each.verified for each in result.results)


def slowdown(result: TrialResult, default: TrialResult) -> float:
    """Return the time of a test run divided by the time with the default settings.

    Both times are from the largest size that the two test runs have in common. If no size is common, the result is 1.0.
    """
    # A single measurement does not prove a small difference.
    base_us = {(each.collective, each.size_bytes): each.median_us for each in default.results}
    both = [each for each in result.results if each.size_bytes >= SMALLEST_THAT_DECIDES_BYTES]
    both = [each for each in both if (each.collective, each.size_bytes) in base_us]
    largest = max(both, key=lambda each: (each.size_bytes, each.collective is Collective.ALL_REDUCE), default=None)
    base = base_us[largest.collective, largest.size_bytes] if largest is not None else 0.0
    if largest is None or isinstance(largest.median_us, Gap) or isinstance(base, Gap) or base <= 0:
        return 1.0
    return largest.median_us / base


def heats(screened: Mapping[str, float]) -> tuple[str, ...]:
    """Return the best configurations in `screened`, at most HEATS, the best first."""
    # Each configuration in the result then gets a short comparison with the default settings, in a new pair of process
    # groups.
    return tuple(sorted(screened, key=lambda name: (-screened[name], name))[:HEATS])


def finalist(screened: Mapping[str, float], heated: Sequence[Duel]) -> str:
    """Return the best configuration if its expected gain is above MIN_GAIN. Otherwise, return ""."""
    # `screened` has the gains in the first test runs. `heated` has the short comparisons. The final comparison ignores
    # these values, because the choice of the best configuration biases them.
    promise = {}
    for heat in heated:
        pairs = [statistics.fmean(points.values()) for points in point_gains(heat.turns).values()]
        if heat.candidate in screened and pairs and not heat.problem and all(turn.verified for turn in heat.turns):
            promise[heat.candidate] = (screened[heat.candidate] + statistics.fmean(pairs)) / 2
    best = min(promise, key=lambda name: (-promise[name], name), default="")
    return best if best and math.expm1(promise[best]) > MIN_GAIN else ""


def _medians(decisions: Sequence[Measure], result: TrialResult) -> dict[Point, float]:
    """Return the median time in microseconds for each collective and size used for comparisons.

    Each time is from the measured size that is nearest to the nominal size. Message sizes are rounded to whole elements
    per rank, so measured and nominal sizes differ slightly.
    """
    medians = {}
    for measure in decisions:
        same = [each for each in result.results if each.collective is measure.collective]
        nearest = min(same, key=lambda each: abs(each.size_bytes - measure.nominal_bytes), default=None)
        if nearest is not None and not isinstance(nearest.median_us, Gap) and nearest.median_us > 0:
            medians[measure.collective, measure.nominal_bytes] = nearest.median_us
    return medians
