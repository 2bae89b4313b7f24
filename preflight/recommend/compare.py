"""Decide whether a candidate that was measured afresh against the default clearly beats it."""

from __future__ import annotations

import math
import statistics

from preflight.model.run import Duel
from preflight.model.trial import Comparison
from preflight.plan.duel import MIN_GAIN, Point, point_gains

MIN_ROUNDS = 6

# 0.99 quantiles of Student's t for 1 to 30 degrees of freedom: NIST/SEMATECH e-Handbook, 1.3.6.7.2.
T99 = (
    31.821, 6.965, 4.541, 3.747, 3.365, 3.143, 2.998, 2.896, 2.821, 2.764, 2.718, 2.681, 2.650, 2.624, 2.602,
    2.583, 2.567, 2.552, 2.539, 2.528, 2.518, 2.508, 2.500, 2.492, 2.485, 2.479, 2.473, 2.467, 2.462, 2.457,
)  # fmt: skip


def compare(duel: Duel) -> Comparison:
    """Return what a duel proves.

    The candidate wins when its mean gain exceeds MIN_GAIN, the one-sided 99 % bound over the rounds is above 0, and it
    loses MIN_GAIN at no decision point. A round is one fresh pair of process groups (plan/duel.py says why). A wrong
    answer, a problem, fewer than MIN_ROUNDS rounds or rounds that differ in what they measured win nothing.
    """
    if not _is_usable(duel):
        rounds = len({turn.pair for turn in duel.turns})
        return Comparison(duel.candidate, rounds, mean_gain=0.0, lower_bound=0.0, worst_gain=0.0, wins=False)
    gains = [points for _, points in sorted(point_gains(duel.turns).items())]
    means = [statistics.fmean(points.values()) for points in gains]
    mean = statistics.fmean(means)
    margin = t99(len(means) - 1) * statistics.stdev(means) / math.sqrt(len(means))
    worst = min(statistics.fmean(points[point] for points in gains) for point in gains[0])
    mean_gain, lower_bound, worst_gain = (math.expm1(log) for log in (mean, mean - margin, worst))
    wins = mean_gain > MIN_GAIN and lower_bound > 0 and worst_gain > -MIN_GAIN
    return Comparison(duel.candidate, len(means), mean_gain, lower_bound, worst_gain, wins)


def loses(comparison: Comparison) -> bool:
    """Tell whether the default would have won by the same rule: the bound lies as far above the mean as below it."""
    mean, lower = math.log1p(comparison.mean_gain), math.log1p(comparison.lower_bound)
    return comparison.rounds >= MIN_ROUNDS and math.expm1(-mean) > MIN_GAIN and 2 * mean - lower < 0


def t99(degrees_of_freedom: int) -> float:
    """Return the 0.99 quantile of Student's t; beyond the table its last entry, which errs on the safe side."""
    return T99[min(degrees_of_freedom, len(T99)) - 1]


def _is_usable(duel: Duel) -> bool:
    times_us = [us for turn in duel.turns for us in (turn.default_median_us, turn.candidate_median_us)]
    if duel.problem or not all(turn.verified for turn in duel.turns) or not all(us > 0 for us in times_us):
        return False
    measured: dict[int, set[Point]] = {}
    for turn in duel.turns:
        measured.setdefault(turn.pair, set()).add((turn.collective, turn.size_bytes))
    same = all(points == next(iter(measured.values())) for points in measured.values())
    return len(measured) >= MIN_ROUNDS and same
