"""Learn baselines from simulated nodes, and count the good nodes that they reject and the slow ones that they find.

A good baseline rejects at most 1% of good nodes, whether they differ normally, are of two kinds or have heavy tails.
One measurement of four is disturbed by 20%. Of nodes that lost 10%, 95 of 100 are found.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterator

from preflight.fleet.baseline import learn
from preflight.model.baseline import MOST_REPEATS, Baseline, Point, judge_node
from preflight.model.collective import Collective

POINTS: tuple[Point, ...] = tuple((Collective.ALL_REDUCE, 1 << shift) for shift in (10, 15, 24, 27, 30))
TIMES, WITHIN, DISTURBED, LOSS = 1 + MOST_REPEATS, 0.005, 0.8, 0.10
MOST_REJECTED, SURE, FOUND, SLOW = 0.01, 0.95, 0.95, 10
KINDS: dict[str, Callable[[random.Random], float]] = {
    "normal, 1%": lambda chance: chance.gauss(0, 0.01),
    "normal, 2%": lambda chance: chance.gauss(0, 0.02),
    "two modes, 20% are 4% slower": lambda chance: chance.gauss(0, 0.01) - (0.04 if chance.random() < 0.2 else 0.0),
    "heavy tails": lambda chance: 0.01 * chance.gauss(0, 1) / math.sqrt(chance.gammavariate(1.5, 2 / 3)),
}


def measured(chance: random.Random, factor: float, is_disturbed: bool = False) -> dict[Point, float]:
    """Return what a node measures once."""
    share = DISTURBED if is_disturbed else 1.0
    return {point: 300 * share * math.exp(factor + chance.gauss(0, WITHIN)) for point in POINTS}


def is_rejected(baseline: Baseline, chance: random.Random, factor: float, disturbed: int = -1) -> bool:
    """Return whether a node is rejected, which is measured again as long as it looks slow."""
    taken: list[dict[Point, float]] = []
    for time in range(TIMES):
        taken.append(measured(chance, factor, time == disturbed))
        found = judge_node(baseline, taken)
        if not any(each.is_suspicious for each in found):
            return False
    return any(each.is_below for each in found)


def study(is_small: bool) -> Iterator[tuple[str, bool]]:
    """Yield for each kind of node and number of nodes how many baselines hold what is promised of normal nodes."""
    yield f"{'good nodes':<32}{'learned':>8}{'rejected':>10}{'at most 1%':>12}{'10% slow found':>16}", True
    baselines, judged = (30, 120) if is_small else (100, 400)
    for (name, kind), nodes in itertools.product(KINDS.items(), (5, 20) if is_small else (5, 10, 20, 50)):
        chance = random.Random(f"{name} {nodes}")
        rejected = good = found = 0
        for _ in range(baselines):
            repeated = {f"n{i}": kind(chance) for i in range(nodes)}
            baseline = learn((), {host: [measured(chance, each) for _ in range(3)] for host, each in repeated.items()})
            wrong = sum(is_rejected(baseline, chance, kind(chance), chance.randrange(TIMES)) for _ in range(judged))
            rejected += wrong
            good += wrong <= MOST_REJECTED * judged
            found += sum(is_rejected(baseline, chance, kind(chance) + math.log1p(-LOSS)) for _ in range(SLOW))
        row = f"{name:<32}{nodes:>8}{rejected / baselines / judged:>10.2%}{good / baselines:>12.0%}"
        is_kept = within_chance(baselines - good, baselines, SURE)
        is_kept &= within_chance(baselines * SLOW - found, baselines * SLOW, FOUND)
        yield f"{row}{found / baselines / SLOW:>16.1%}", is_kept


def within_chance(failed: int, of: int, promised: float) -> bool:
    """Return whether the promised share may be kept: chance may add three standard deviations."""
    return failed <= of * (1 - promised) + 3 * math.sqrt(of * promised * (1 - promised))
