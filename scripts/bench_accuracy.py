"""Set our timing beside a plain loop of the same collective and size, in the same processes and process group.

Both mean the same: a barrier, one call, the maximum over the ranks, the median over the repetitions. Three sides take
turns, a repetition each, each beginning as often as the others: ours, the plain loop, and the plain loop once more,
whose difference from itself is what this machine can tell apart. Exits 1 where ours differs by more than both 5%
and twice that.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from preflight.model.collective import Collective

# torch is imported where a rank needs it: the process that starts the ranks, and its tests, do without.
if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store

    from preflight.trial.rank.buffers import Ranks

RANKS = 2
KIB, MIB = 1 << 10, 1 << 20
# Seconds for each collective at each size: the larger, the fewer repetitions fit into one.
BUDGETS_S = {64 * KIB: 5.0, 256 * KIB: 5.0, MIB: 8.0, 4 * MIB: 8.0, 16 * MIB: 10.0}
COLLECTIVES = (Collective.ALL_REDUCE, Collective.ALL_GATHER)
POINTS = tuple((collective, size) for size in BUDGETS_S for collective in COLLECTIVES)
OURS, PLAIN, AGAIN = SIDES = ("ours", "plain", "plain again")
# In each set every side has every place once; the sets take turns, so that each side follows each other equally often.
ORDERS = (((0, 1, 2), (1, 2, 0), (2, 0, 1)), ((2, 1, 0), (0, 2, 1), (1, 0, 2)))
BLOCK = 8  # repetitions
WARM_UPS = 3
LEAD_IN = 2
SLACK_S = 120.0  # for start and end, and for the last turn of each point
MOST_DIFFERENCE = 0.05
MOST_OF_OWN = 2.0  # times the plain loop's difference from itself


@dataclass(frozen=True, slots=True)
class Point:
    """The medians of the three sides for one collective at one size."""

    collective: Collective
    size_bytes: int
    repetitions: int  # on each side
    ours_us: float
    plain_us: float
    again_us: float

    @property
    def difference(self) -> float:
        """How much longer ours says it takes than the two plain loops do on average; 0.05 is 5%."""
        return self.ours_us / ((self.plain_us + self.again_us) / 2) - 1

    @property
    def own_difference(self) -> float:
        """How far the plain loop is from itself."""
        return abs(self.plain_us - self.again_us) / ((self.plain_us + self.again_us) / 2)

    @property
    def allowed(self) -> float:
        """How far ours may be from the plain loops."""
        return max(MOST_DIFFERENCE, MOST_OF_OWN * self.own_difference)

    @property
    def is_true(self) -> bool:
        """Whether ours is as near to the plain loop as promised."""
        return abs(self.difference) <= self.allowed


def point(place: int, ranks: Sequence[dict[str, list[float]]]) -> Point:
    """Return the medians of one point, from every rank's microseconds per side."""
    slowest = {side: [max(times) for times in zip(*(rank[side] for rank in ranks), strict=True)] for side in SIDES}
    medians = [statistics.median(slowest[side]) for side in SIDES]
    return Point(*POINTS[place], len(slowest[OURS]), *medians)


def describe(points: Sequence[Point]) -> str:
    """Return the page."""
    lines = [
        f"accuracy: gloo, {RANKS} ranks, a repetition of each in turns, medians in microseconds",
        "  collective      bytes  repetitions       ours      plain   differs  plain from itself  allowed",
    ]
    for each in points:
        lines.append(
            f"  {each.collective.value:10} {each.size_bytes:10} {each.repetitions:12} {each.ours_us:10.1f} "
            f"{(each.plain_us + each.again_us) / 2:10.1f} {each.difference:+9.1%} {each.own_difference:18.1%} "
            f"{each.allowed:8.1%}{'' if each.is_true else '  MISSED'}"
        )
    return "\n".join(lines) + "\n"


def measure(rank: int, folder: str, scale: float) -> None:
    """Be one rank: time every point on all three sides and leave the microseconds in `folder`."""
    import torch  # noqa: PLC0415
    import torch.distributed as dist  # noqa: PLC0415
    from torch._C._distributed_c10d import FileStore  # noqa: PLC0415

    from preflight.trial.rank.buffers import Ranks  # noqa: PLC0415

    store = FileStore(os.path.join(folder, "store"), RANKS)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=RANKS, timeout=timedelta(seconds=60))
    ranks = Ranks(rank, RANKS, torch.device("cpu"))
    found = [_measure_point(ranks, store, place, scale) for place in range(len(POINTS))]
    with open(os.path.join(folder, f"rank{rank}.json"), "w", encoding="utf-8") as file:
        json.dump(found, file)
    dist.barrier()
    dist.destroy_process_group()


def _measure_point(ranks: Ranks, store: Store, place: int, scale: float) -> dict[str, list[float]]:
    """Return this rank's microseconds per side, a repetition of each in turns until rank 0 says that the time is up.

    A shared machine has fast and slow seconds: only what alternates within milliseconds can be compared.
    """
    collective, size_bytes = POINTS[place]
    calls = (_ours(collective, size_bytes, ranks), _plain(collective, size_bytes, ranks))
    for call in calls * WARM_UPS:
        call()
    found: dict[str, list[float]] = {side: [] for side in SIDES}
    until = time.monotonic() + scale * BUDGETS_S[size_bytes]
    turn = 0
    while turn == 0 or _agree(store, ranks, f"{place}/{turn}/go on", int(time.monotonic() < until)):
        for call in calls * LEAD_IN:  # the ranks come out of the agreement apart
            call()
        for order in ORDERS[turn % 2] * BLOCK:
            for side in order:
                found[SIDES[side]].append(calls[SIDES[side] != OURS]())
        turn += 1
    return found


def _ours(collective: Collective, size_bytes: int, ranks: Ranks) -> Callable[[], float]:
    """Return one repetition as preflight times it."""
    from preflight.trial.rank.buffers import allocate, caller  # noqa: PLC0415
    from preflight.trial.rank.measure import time_once  # noqa: PLC0415

    call = caller(collective, allocate(collective, size_bytes, ranks), ranks)
    return lambda: time_once(call, ranks)[1]


def _plain(collective: Collective, size_bytes: int, ranks: Ranks) -> Callable[[], float]:
    """Return one repetition as anybody would write it; it shares no code with ours."""
    import torch  # noqa: PLC0415
    import torch.distributed as dist  # noqa: PLC0415

    whole = torch.zeros(size_bytes // 4)
    share = torch.zeros(size_bytes // 4 // ranks.world_size)
    gather: Callable[..., Any] = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor

    def once() -> float:
        dist.barrier()
        start = time.perf_counter()
        if collective is Collective.ALL_REDUCE:
            dist.all_reduce(whole)
        else:
            gather(whole, share)
        return (time.perf_counter() - start) * 1e6

    return once


def _agree(store: Store, ranks: Ranks, key: str, mine: int) -> int:
    """Return rank 0's number on every rank."""
    if ranks.rank == 0:
        store.set(key, str(mine))
    return int(store.get(key))


def run_ranks(scale: float) -> list[Point]:
    """Start the ranks, wait for them and return what they measured together."""
    limit_s = SLACK_S + scale * len(COLLECTIVES) * sum(BUDGETS_S.values())
    environ = dict(os.environ) | {"OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory(prefix="preflight-bench-") as folder:
        argv = [sys.executable, __file__, "--scale", str(scale), "--folder", folder, "--rank"]
        running = [subprocess.Popen([*argv, str(rank)], env=environ) for rank in range(RANKS)]
        try:
            codes = [process.wait(limit_s) for process in running]
        finally:
            for process in running:
                process.kill()
        if any(codes):
            raise SystemExit(f"the ranks ended with exit codes {codes}")
        found = []
        for rank in range(RANKS):
            with open(os.path.join(folder, f"rank{rank}.json"), encoding="utf-8") as file:
                found.append(json.load(file))
    return [point(place, [rank[place] for rank in found]) for place in range(len(POINTS))]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--scale", type=float, default=1.0, help="measure so many times as long (50 s)")
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.rank is not None:
        measure(asked.rank, asked.folder, asked.scale)
        return 0
    points = run_ranks(asked.scale)
    sys.stdout.write(describe(points))
    return 0 if all(each.is_true for each in points) else 1


if __name__ == "__main__":
    sys.exit(main())
