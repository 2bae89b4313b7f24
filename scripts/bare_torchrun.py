"""What the benchmarks put beside preflight: a bare torchrun whose ranks make one group and do one all_reduce."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

LIMIT_S = 600.0
TUNING = ("NCCL_", "GLOO_", "TORCH_", "PREFLIGHT_", "SIMNCCL", "CUDA_VISIBLE")
ROOT = Path(__file__).resolve().parent.parent
BARE = """\
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
ones = torch.ones(2)  # 8 B
dist.all_reduce(ones)
assert ones.tolist() == [dist.get_world_size()] * 2
dist.destroy_process_group()
"""


def write_script(folder: str) -> str:
    """Write what each rank runs; return its path."""
    script = Path(folder) / "bare.py"
    script.write_text(BARE, encoding="utf-8")
    return str(script)


def environment(inherited: Mapping[str, str], folder: str) -> dict[str, str]:
    """Return the environment of both sides: nothing that tunes communication, one thread per rank, files in `folder`.

    Compiled modules are kept, as for an installed package: otherwise preflight's own are compiled again at each start.
    """
    kept = {name: value for name, value in inherited.items() if not name.startswith(TUNING)}
    kept.pop("PYTHONDONTWRITEBYTECODE", None)
    return kept | {"OMP_NUM_THREADS": "1", "TMPDIR": folder, "PYTHONPATH": str(ROOT)}


def timed_s(argv: Sequence[str], environ: Mapping[str, str], folder: str) -> float:
    """Run a command to its end; return its seconds. SystemExit where it fails."""
    start = time.monotonic()
    ran = subprocess.run(
        argv, env=environ, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT_S,
        check=False,
    )  # fmt: skip
    took_s = time.monotonic() - start
    if ran.returncode != 0:
        raise SystemExit(f"{' '.join(argv)} ended with exit code {ran.returncode}:\n{ran.stdout}{ran.stderr}")
    return took_s
