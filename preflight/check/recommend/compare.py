"""Decide whether a configuration is clearly faster than the default settings, from a paired comparison."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict

from preflight.model.run_spec import Duel
from preflight.model.stats import t_quantile
from preflight.model.trial import Comparison
from preflight.search.settings.duel import MIN_GAIN, Point, point_gains

MIN_ROUNDS = 6


def compare(duel: Duel) -> Comparison:
    """Return the result of the paired comparison `duel`.

    The configuration wins if the mean speed is reliably higher, and if no collective or size loses MIN_GAIN or more.
    """
    # The configuration wins if three conditions hold. The mean gain is above MIN_GAIN. The one-sided 99% lower bound of
    # the gain is above 0. At every collective and size, the loss is below MIN_GAIN. A configuration can't win with a
    # wrong result, a problem or fewer than MIN_ROUNDS rounds. A round is one new pair of process groups. All rounds
    # must have measured the same collectives and sizes.
    if not _is_usable(duel):
        rounds = len({turn.pair for turn in duel.turns})
        return Comparison(duel.candidate, rounds, mean_gain=0.0, lower_bound=0.0, worst_gain=0.0, wins=False)
    gains = [points for _, points in sorted(point_gains(duel.turns).items())]
    means = [statistics.fmean(points.values()) for points in gains]
    mean = statistics.fmean(means)
    margin = t_quantile(len(means) - 1, 0.99) * statistics.stdev(means) / math.sqrt(len(means))
    worst = min(statistics.fmean(points[point] for points in gains) for point in gains[0])
    mean_gain, lower_bound, worst_gain = (math.expm1(log) for log in (mean, mean - margin, worst))
    wins = mean_gain > MIN_GAIN and lower_bound > 0 and worst_gain > -MIN_GAIN
    return Comparison(duel.candidate, len(means), mean_gain, lower_bound, worst_gain, wins)


def loses(comparison: Comparison) -> bool:
    """Return whether the default settings are faster by more than MIN_GAIN, with 99% confidence."""
    mean, lower = math.log1p(comparison.mean_gain), math.log1p(comparison.lower_bound)
    return comparison.rounds >= MIN_ROUNDS and math.expm1(-mean) > MIN_GAIN and 2 * mean - lower < 0


def _is_usable(duel: Duel) -> bool:
    times_us = [us for turn in duel.turns for us in (turn.default_median_us, turn.candidate_median_us)]
    if duel.problem or not all(turn.verified for turn in duel.turns) or not all(us > 0 for us in times_us):
        return False
    measured: dict[int, set[Point]] = defaultdict(set)
    for turn in duel.turns:
        measured[turn.pair].add((turn.collective, turn.size_bytes))
    return len(measured) >= MIN_ROUNDS and len(set(map(frozenset, measured.values()))) == 1
