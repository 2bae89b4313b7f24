"""Where the fetched libraries and the built ones lie: `.simcuda/` of the project, or PREFLIGHT_SIMCUDA_DIR.

`python -m tests.simcuda.places` says in one line what is missing here for a run, and fails then.
"""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent.parent
SOURCES = Path(__file__).with_name("c")
WITH_DATA = "2.27.5"  # the version whose structures c/collectives/ knows


@dataclass(frozen=True, slots=True)
class Wheel:
    """A distribution of the package index, and the folder of `.simcuda/` that it is unpacked into."""

    name: str
    version: str
    folder: str


NCCL = {
    "2.21.5": Wheel("nvidia-nccl-cu12", "2.21.5", "nccl/2.21.5"),
    "2.27.5": Wheel("nvidia-nccl-cu12", "2.27.5", "nccl/2.27.5"),
    "2.32.3": Wheel("nvidia-nccl-cu12", "2.32.3", "nccl/2.32.3"),
}
HEADERS = Wheel("nvidia-cuda-runtime-cu12", "12.9.79", "cuda")
TORCH = Wheel("torch", "2.10.0", "torch")


def root() -> Path:
    """Return the folder of everything that is fetched and built."""
    return Path(os.environ.get("PREFLIGHT_SIMCUDA_DIR") or PROJECT / ".simcuda").resolve()


def nccl(version: str) -> Path:
    """Return libnccl of this version."""
    return root() / NCCL[version].folder / "nvidia/nccl/lib/libnccl.so.2"


def built(name: str) -> Path:
    """Return what fetch.py has built under this name."""
    return root() / "build" / name


def python() -> Path:
    """Return the interpreter that has the torch with CUDA."""
    return root() / "venv/bin/python"


def missing(torch: bool = False) -> str:
    """Return why the simulated CUDA can't be used here, "" where it can."""
    wanted = [*map(nccl, NCCL), built("libcuda.so.1"), built("ranks"), *([python()] if torch else [])]
    gone = next((path for path in wanted if not path.exists()), None)
    return f"{gone} is not there; `make simcuda` fetches and builds it" if gone else ""


def unable() -> str:
    """Return what a run needs that is not here, "" where it has all."""
    if os.geteuid() or not shutil.which("unshare"):
        return "simcuda: needs root and unshare, for a /dev/shm and a network of its own for each run"
    reason = missing(torch=True)
    return f"simcuda: {reason}" if reason else ""


if __name__ == "__main__":
    sys.exit(unable() or 0)
