"""Compare fleets of healthy nodes as preflight measures them, and count those in which a node is called an outlier.

A "slowest rank" is the largest of eight, a slowest GPU the least of eight, and small sizes have more noise. How often a
node that is 8% slower at every size is found is printed.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator
from dataclasses import replace

from preflight.fleet.digest import NodeDigest
from preflight.fleet.outliers import LEAST_NODES, compare_nodes

SHARE = 0.05  # of fleets that may have a false outlier
LOSS = 0.08
BLANK = NodeDigest("", "", "", "ready", "", (("GPUs", "8"),), {}, {}, (), False, False, False, ())


def healthy(chance: random.Random, place: int) -> NodeDigest:
    """Return a healthy node."""
    node, metrics = chance.gauss(0, 0.01), {}
    for collective, size in itertools.product(("all_reduce", "all_gather"), range(16)):
        what, is_small = f"{collective} {8 * 4**size}", size < 8
        metrics[f"{what} busbw GB/s"] = math.exp(5 + node + chance.gauss(0, 0.04 if is_small else 0.005))
        late = 0.05 if is_small else 0.02
        metrics[f"{what} slowest rank"] = math.exp(max(abs(chance.gauss(0, late)) for _ in range(8)))
        metrics[f"{what} slow calls"] = math.exp(abs(chance.gauss(0, late)))
    for name in ("GEMM float32 TFLOP/s", "h2d near NUMA GB/s"):
        metrics[name] = math.exp(4 + min(chance.gauss(0, 0.012) for _ in range(8)))
    return replace(BLANK, path=f"{place}.json", host=f"n{place:05}", metrics=metrics)


def study(is_small: bool) -> Iterator[tuple[str, bool]]:
    """Yield for each size of fleet how many have a false outlier, and how many find the slow node."""
    yield f"{'nodes':>7}{'fleets':>8}{'with a false outlier':>22}{'slow node found':>17}", True
    sizes = [(5, 10), (20, 10), (100, 4)]
    if not is_small:
        sizes = [(5, 200), (20, 200), (50, 100), (200, 60), (1000, 40), (10_000, 4)]
    for nodes, fleets in sizes:
        chance, false, found = random.Random(nodes), 0, 0
        for _ in range(fleets):
            members = [healthy(chance, place) for place in range(nodes)]
            false += bool(compare_nodes(members)[0].odd)
            last = members[-1]
            slowed = {name: value * (1 - LOSS if "busbw" in name else 1) for name, value in last.metrics.items()}
            odd = compare_nodes([*members[:-1], replace(last, metrics=slowed)])[0].odd
            found += last.host in {each.host for each in odd}
        most = SHARE * fleets + 3 * math.sqrt(SHARE * (1 - SHARE) * fleets)
        yield (
            f"{nodes:>7}{fleets:>8}{false:>22}{found:>17}",
            false <= most and (nodes >= LEAST_NODES.value or not false),
        )
