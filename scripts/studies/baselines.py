"""Learn baselines from simulated nodes, and count the good nodes that they reject and the slow ones that they find.

A good baseline rejects at most 1% of good nodes. One that is computed from two kinds of node may reject more, and its
page then names those of its own nodes that it would reject. One measurement of four may be disturbed by 20%.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterator

from preflight.fleet.baseline import learn, own_rejected
from preflight.model.baseline import MOST_REPEATS, Baseline, Point, judge_node
from preflight.model.collective import Collective

POINTS: tuple[Point, ...] = tuple((Collective.ALL_REDUCE, 1 << shift) for shift in (10, 15, 24, 27, 30))
TIMES, WITHIN, DISTURBED, LOSS = 1 + MOST_REPEATS, 0.005, 0.8, 0.10
MOST_REJECTED, SURE, FOUND = 0.01, 0.95, 0.95
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
    yield (
        f"{'good nodes':<32}{'learnt':>7}{'rejected':>10}{'at most 1%':>12}{'or warned':>11}{'10% slow found':>16}",
        True,
    )
    baselines, judged = (12, 30) if is_small else (100, 100)
    for (name, kind), nodes in itertools.product(KINDS.items(), (5, 20) if is_small else (5, 10, 20, 50)):
        chance = random.Random(f"{name} {nodes}")
        rejected = good = warned = found = 0
        for _ in range(baselines):
            repeated = {f"n{i}": (kind(chance), 3) for i in range(nodes)}
            learnt = {host: [measured(chance, each) for _ in range(times)] for host, (each, times) in repeated.items()}
            baseline = learn((), learnt)
            wrong = sum(is_rejected(baseline, chance, kind(chance), chance.randrange(TIMES)) for _ in range(judged))
            is_good = wrong <= MOST_REJECTED * judged
            rejected += wrong
            good += is_good
            warned += not is_good and bool(own_rejected(baseline, learnt))
            found += sum(is_rejected(baseline, chance, kind(chance) + math.log1p(-LOSS)) for _ in range(10))
        share = found / baselines / 10
        is_kept = (good + warned) / baselines >= (0.8 if is_small else SURE) or not name.startswith("normal")
        row = f"{name:<32}{nodes:>7}{rejected / baselines / judged:>10.2%}{good / baselines:>12.0%}"
        row += f"{warned / baselines:>11.0%}"
        yield f"{row}{share:>16.1%}", is_kept
