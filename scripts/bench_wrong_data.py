"""Count how often data that are wrong in some of the timed calls are found, beside what is promised.

The real measurement in a group of one rank, with as many steps as the profile has, and calls that go wrong by chance:
one element is another, or the call moves nothing and leaves what was there. The calls before and after the timed ones
are always right. Exits 1 where fewer are found than promised.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import count, product

from preflight.model.collective import Collective
from preflight.model.profile import COLLECTIVES, Profile
from preflight.model.run_spec import Measure
from preflight.search import profiles

RUNS = 100
RATES = (0.01, 0.02, 0.05, 0.1, 0.25)
PROMISED_FROM, PROMISED = 0.05, 0.99  # in standard
SPARE = 0.03  # of 100 runs that find 99 % each, more than 4 miss with a chance of 0.3 %
STEP_BYTES = 64  # what is found depends on how many calls are verified, not on how large they are
FAULTS = {"one element": COLLECTIVES, "nothing moved": (Collective.ALL_GATHER,)}  # a lone sum moves nothing
LEAD_IN_CALLS = 3  # verified, and twice to see how long it takes


@dataclass(frozen=True, slots=True)
class Row:
    """What one kind of fault at one rate came to."""

    fault: str
    profile: Profile
    rate: float
    verified_calls: int
    timed_calls: int
    found: float  # share of the runs

    @property
    def expected(self) -> float:
        """The share that is found by the verified calls alone."""
        return float(1 - (1 - self.rate) ** self.verified_calls)

    @property
    def is_kept(self) -> bool:
        """Whether the promise is kept, where there is one."""
        promised = self.profile is not Profile.QUICK and self.rate >= PROMISED_FROM
        return self.found >= (PROMISED if promised else self.expected) - SPARE * (1 if promised else 5)


def steps_of(profile: Profile, fault: str) -> tuple[Measure, ...]:
    """Return the steps of a trial on the CPU, small and no longer than they must be."""
    sizes = profiles.sizes(profile, on_gpu=False, free_bytes_per_rank=profiles.GIB)
    steps = profiles.trial_measures(profile, sizes, FAULTS[fault])
    return tuple(replace(step, nominal_bytes=STEP_BYTES, budget_s=0.0) for step in steps)


def try_rate(fault: str, profile: Profile, rate: float, runs: int, rng: random.Random) -> Row:
    """Return how many of the runs found the fault."""
    steps = steps_of(profile, fault)
    found = sum(any(_finds(step, fault, rate, rng) for step in steps) for _ in range(runs))
    timed = sum(step.min_repetitions for step in steps)
    return Row(fault, profile, rate, sum(step.verified_calls for step in steps), timed, found / runs)


def _finds(step: Measure, fault: str, rate: float, rng: random.Random) -> bool:
    import torch  # noqa: PLC0415

    from preflight.trial.rank.buffers import Ranks, allocate, caller  # noqa: PLC0415
    from preflight.trial.rank.measure import LEAD_IN, measure_call  # noqa: PLC0415

    ranks = Ranks(0, 1, torch.device("cpu"))
    buffers = allocate(step.collective, step.nominal_bytes, ranks)
    real, places = caller(step.collective, buffers, ranks), count(-LEAD_IN_CALLS - LEAD_IN)

    def call() -> None:
        is_wrong = 0 <= next(places) < step.min_repetitions and rng.random() < rate
        if not (is_wrong and fault == "nothing moved"):
            real()
        if is_wrong and fault == "one element":
            buffers.receive[rng.randrange(buffers.receive.numel())] += 1

    return measure_call(step, buffers, call, ranks, _lead_in_of_short_calls).wrong_elements > 0


def _lead_in_of_short_calls(what: str, mine: int) -> int:
    from preflight.trial.rank.measure import LEAD_IN  # noqa: PLC0415

    return LEAD_IN if what == "lead-in" else mine


def describe(rows: Sequence[Row]) -> str:
    """Return the page."""
    lines = [
        "wrong data in some of the timed calls",
        "  fault          profile   wrong calls  verified calls    found  by those alone  promised",
    ]
    for row in rows:
        promised = f"{PROMISED:.0%}" if row.profile is not Profile.QUICK and row.rate >= PROMISED_FROM else "-"
        lines.append(
            f"  {row.fault:14} {row.profile.value:9} {row.rate:11.0%}  {row.verified_calls:4} of {row.timed_calls:4}   "
            f"{row.found:9.1%} {row.expected:15.1%}  {promised:>8}{'' if row.is_kept else '  MISSED'}"
        )
    return "\n".join(lines) + "\n"


def in_group(act: Callable[[], list[Row]]) -> list[Row]:
    """Return what comes of an act in a process group of this process alone."""
    import torch  # noqa: PLC0415
    import torch.distributed as dist  # noqa: PLC0415
    from torch._C._distributed_c10d import FileStore  # noqa: PLC0415

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="preflight-bench-") as folder:
        store = FileStore(os.path.join(folder, "store"), 1)
        dist.init_process_group("gloo", store=store, rank=0, world_size=1, timeout=timedelta(seconds=60))
        try:
            return act()
        finally:
            dist.destroy_process_group()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    rng = random.Random(asked.seed)
    cases = list(product(FAULTS, (Profile.QUICK, Profile.STANDARD), RATES))
    rows = in_group(lambda: [try_rate(*case, asked.runs, rng) for case in cases])
    sys.stdout.write(describe(rows))
    return 0 if all(row.is_kept for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
