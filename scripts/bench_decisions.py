"""Count how often the decision rule is right when the truth is known: simulated noise, the real rule.

Noise: every process group has an offset of its own (5%), shared by all that it measures; every repetition 10% more;
a figure is the median of 20 repetitions. Prints the counts and exits 1 where they miss the promise.
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
import sys

from preflight.check.recommend.compare import compare
from preflight.model.collective import Collective
from preflight.model.run_spec import Duel, DuelTurn, Measure
from preflight.model.trial import DEFAULT, CollectiveResult, Outcome, Scope, TrialResult
from preflight.search.settings.duel import DUEL_PAIRS, DUEL_TURNS, finalist, heats, screening_gains

BETWEEN, WITHIN = 0.05, 0.10
REPETITIONS = 20
CANDIDATES = 8
RUNS = 200
MOST_FALSE, LEAST_FOUND = 2, 190
POINTS = tuple((c, s) for c in (Collective.ALL_REDUCE, Collective.ALL_GATHER) for s in (32 << 20, 1 << 30))
MEASURES = tuple(Measure(collective, size, 1.0, REPETITIONS, REPETITIONS) for collective, size in POINTS)


def simulate_decisions(seed: int, fastest_speedup: float, runs: int, pairs: int = DUEL_PAIRS) -> tuple[int, int]:
    """Return in how many runs an equal candidate was recommended, and in how many the fastest one.

    Candidate `c0` is `fastest_speedup` times as fast as the default, the others equal it.
    """
    rng = random.Random(seed)
    speeds = {f"c{i}": fastest_speedup if i == 0 else 1.0 for i in range(CANDIDATES)}
    winners = [_one_run(rng, speeds, pairs) for _ in range(runs)]
    faster = sum(winner == "c0" for winner in winners) if fastest_speedup > 1 else 0
    return sum(bool(winner) for winner in winners) - faster, faster


def _one_run(rng: random.Random, speeds: dict[str, float], pairs: int) -> str:
    """Return the candidate that is recommended, or "" for none."""
    results = [_trial(rng, name, speed) for name, speed in {DEFAULT: 1.0, **speeds}.items()]
    screened = screening_gains(MEASURES, results)
    heated = [_duel(rng, name, speeds[name], 1) for name in heats(screened)]
    best = finalist(screened, heated)
    return best if best and compare(_duel(rng, best, speeds[best], pairs)).wins else ""


def _duel(rng: random.Random, name: str, speed: float, pairs: int) -> Duel:
    turns = []
    for pair in range(pairs):
        default, candidate = _offset(rng), _offset(rng) / speed
        for turn in range(DUEL_TURNS):
            for collective, size in POINTS:
                times = [_median_us(rng, group, REPETITIONS // DUEL_TURNS) for group in (default, candidate)]
                turns.append(DuelTurn(pair, turn, collective, size, times[0], times[1], verified=True))
    return Duel(name, tuple(turns), "")


def _trial(rng: random.Random, name: str, speed: float) -> TrialResult:
    group = _offset(rng) / speed
    results = tuple(_result(c, size, _median_us(rng, group, REPETITIONS)) for c, size in POINTS)
    return TrialResult(
        candidate=name, reason="", env=(), trial_env=(), unset=(), scope=Scope.ANYWHERE, outcome=Outcome.OK, problem="",
        culprits=(), stages=(), ranks=(), world_size_reported=(), transport=(), results=results, started_by="fork",
        duration_s=0.0,
    )  # fmt: skip


def _result(collective: Collective, size_bytes: int, median_us: float) -> CollectiveResult:
    return CollectiveResult(
        collective=collective, size_bytes=size_bytes, repetitions=REPETITIONS, min_us=median_us, median_us=median_us,
        p95_us=median_us, spread=0.0, algbw_gb_s=0.0, busbw_gb_s=0.0, verified=True, wrong_elements=0, ranks=(),
    )  # fmt: skip


def _offset(rng: random.Random) -> float:
    return math.exp(rng.gauss(0.0, BETWEEN))


def _median_us(rng: random.Random, group: float, repetitions: int) -> float:
    return 1000 * group * statistics.median(max(0.1, 1 + rng.gauss(0.0, WITHIN)) for _ in range(repetitions))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--pairs", type=int, default=DUEL_PAIRS)
    asked = parser.parse_args()
    false, _ = simulate_decisions(asked.seed, 1.0, asked.runs, asked.pairs)
    wrong, found = simulate_decisions(asked.seed + 1, 1.2, asked.runs, asked.pairs)
    scale = asked.runs / RUNS
    sys.stdout.write(
        f"decisions: {asked.runs} simulated runs each, seed {asked.seed}, {asked.pairs} pairs of process groups\n"
        f"  {CANDIDATES} equal candidates: {false} false recommendations (at most {MOST_FALSE * scale:g})\n"
        f"  one 20 % faster: {found} found (at least {LEAST_FOUND * scale:g}), {wrong} wrong ones\n"
    )
    return 0 if false <= MOST_FALSE * scale and found >= LEAST_FOUND * scale else 1


if __name__ == "__main__":
    sys.exit(main())
