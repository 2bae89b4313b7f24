"""The profiles of a run: how thorough a run is, and which parts are left out."""

from __future__ import annotations

from dataclasses import dataclass

from preflight.model.collective import Collective
from preflight.model.word import Word

MIB, GIB = 1 << 20, 1 << 30
COLLECTIVES = (Collective.ALL_REDUCE, Collective.ALL_GATHER)  # timed by default
BESIDES_BURNING_S = 900.0  # for the probe, the trials and the tests before the burn-in
Timing = tuple[float, int, int, int]  # seconds at one size, fewest and most repetitions, how many are verified at least


class Profile(Word):
    """The profiles of a run, the quickest first. A new profile is a new name here and a new row in EFFORTS."""

    QUICK = "quick"
    STANDARD = "standard"
    BURN = "burn"

    @property
    def effort(self) -> Effort:
        """The measurements of this profile, and its time limit."""
        return EFFORTS[self]


@dataclass(frozen=True, slots=True)
class Effort:
    """What a profile measures, and how often."""

    words: str  # of --help
    deadline_s: float
    timing: Timing  # of each collective at each size
    runs_each: int  # runs with default settings, and with a workaround, that confirm the workaround
    gemm_s: float  # seconds on one product of matrices
    copy_s: float  # seconds on one copy between GPU and host
    for_speed: bool = True  # also tries settings for speed, measures pairs' bandwidth and tests each RDMA port
    # Timed calls that a trial verifies, half of them of the two largest sizes. Data that are wrong in 5% of all
    # calls escape 90 with a chance of 0.95**90 = 1%; data wrong in 5% of those large ones escape 45 with 10%.
    verified_calls: int = 90
    sizes_bytes: tuple[int, ...] = ()  # on GPUs; if empty, powers of four
    burn_s: float = 0.0  # how long tests are repeated under load, unless --minutes is given

    def until_s(self, burn_s: float | None) -> float:
        """Return the default time limit of a run in seconds, including the time for the requested burn-in."""
        if not self.burn_s or burn_s is None:
            return self.deadline_s
        return max(self.deadline_s, burn_s + BESIDES_BURNING_S)


EFFORTS = {
    Profile.QUICK: Effort(
        "seconds", 180.0, (0.1, 7, 30, 3), runs_each=2, gemm_s=0.3, copy_s=0.02, for_speed=False, verified_calls=0,
        sizes_bytes=(8, MIB, 32 * MIB, GIB),
    ),
    Profile.STANDARD: Effort("minutes", 900.0, (0.5, 9, 60, 3), runs_each=4, gemm_s=2.0, copy_s=0.2),
    Profile.BURN: Effort(
        "10 minutes or more under load", 3600.0, (2.0, 15, 400, 5), runs_each=6, gemm_s=5.0, copy_s=0.5, burn_s=600.0
    ),
}  # fmt: skip


class GpuTests(Word):
    """The tests in addition to the collectives, with their names in `--tests`."""

    PAIRS = "pairs"  # copies between two GPUs
    GPUS = "gpus"  # products on each GPU, and copies between it and the host
    RAILS = "rails"  # RDMA ports, one at a time


ALL_TESTS = frozenset(GpuTests)
LEFT_OUT = "left out by --tests"
SKIPPED = "skipped by --skip"
BY_ORDER = (LEFT_OUT, SKIPPED)  # if the user left a check out on one node, its result counts for no node
