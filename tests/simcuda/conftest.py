"""Skip what needs `make simcuda`, or fail where PREFLIGHT_REQUIRE names it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable

import pytest

from tests.simcuda.places import missing


@pytest.fixture
def simcuda(need: Callable[[str, bool, str], None]) -> None:
    """Need the real NCCL, the simulated driver, and root for a namespace a run."""
    need("simcuda", not missing(), missing())
    need(
        "simcuda",
        os.geteuid() == 0 and shutil.which("unshare") is not None,
        "needs root, for a /dev/shm and a network of its own",
    )


@pytest.fixture
def simcuda_torch(simcuda: None, need: Callable[[str, bool, str], None]) -> None:
    """Need torch with CUDA too."""
    need("simcuda", not missing(torch=True), missing(torch=True))
