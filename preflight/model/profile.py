"""How thorough a run is, and what of it is left out."""

from __future__ import annotations

from enum import Enum


class Profile(Enum):
    """How thorough a run is."""

    QUICK = "quick"
    STANDARD = "standard"
    BURN = "burn"


class GpuTests(Enum):
    """What is tested beside the collectives, by the names that `--tests` takes."""

    PAIRS = "pairs"  # copies between two GPUs
    GPUS = "gpus"  # products on each GPU, and copies between it and the host
    RAILS = "rails"  # RDMA ports, each by itself


ALL_TESTS = frozenset(GpuTests)
LEFT_OUT = "left out by --tests"
SKIPPED = "skipped by --skip"
BY_ORDER = (LEFT_OUT, SKIPPED)  # a check that one of several nodes left out speaks for none of them
