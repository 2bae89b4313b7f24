"""What the tests of the command line share: one full run that many look at, and a skip where GPUs are."""

from __future__ import annotations

import glob
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from preflight.check.survey import survey_machine
from preflight.search.backend_choice import has_nvidia_hardware
from preflight.system.kernel_queries import live_machine
from tests.command import Command, Ran

OLD_ENV = "export NCCL_IB_DISABLE='1'\n"


@pytest.fixture(scope="session")
def has_gpu() -> bool:
    """Tell whether `preflight check` takes the GPU path on this machine."""
    return bool(glob.glob("/dev/nvidia*")) or has_nvidia_hardware(survey_machine(live_machine(), None).node)


@pytest.fixture
def cpu_path(need: Callable[[str, bool, str], None], has_gpu: bool) -> None:
    """Skip where GPUs are: what the CPU path promises holds on machines without."""
    need("cpu-path", not has_gpu, "there is a GPU here, so `preflight check` does not take the CPU path")


@pytest.fixture(scope="session")
def healthy(tmp_path_factory: pytest.TempPathFactory, has_gpu: bool) -> Iterator[Ran]:
    """Run `preflight check --nproc 2 --profile quick --json -` once, beside a preflight.env of an earlier run."""
    if has_gpu:
        pytest.skip("there is a GPU here, so `preflight check` does not take the CPU path")
    command = Command(sys.executable, tmp_path_factory.mktemp("healthy"))
    write_old_env(command)
    yield command.run("check", "--nproc", "2", "--profile", "quick", "--json", "-")
    left = command.processes()
    command.kill_all()
    assert not left, f"left behind: {left}"


def write_old_env(command: Command) -> Path:
    """Leave a preflight.env of an earlier run where the command will run."""
    path = command.cwd / "preflight.env"
    path.write_text(OLD_ENV)
    return path
