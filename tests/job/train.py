"""Two ranks on gloo that end in one of the ways in which jobs end; FOLDER gets what they wait for."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

WAY, FOLDER = sys.argv[1], Path(sys.argv[2])


def save() -> None:
    """Write a checkpoint to a place that never takes it."""
    with (FOLDER / "checkpoint").open("wb") as file:
        torch.save(torch.ones(1), file)


dist.init_process_group("gloo")
rank = dist.get_rank()
dist.all_reduce(torch.ones(1))
sys.stderr.write(f"rank {rank} trains\n")
if WAY == "error" and rank == 1:
    raise ValueError("the tokenizer has no pad token")
if WAY == "oom" and rank == 1:
    os.kill(os.getpid(), signal.SIGKILL)
if WAY == "save" and rank == 0:
    save()
if WAY == "evaluate" and rank == 0:
    until = time.monotonic() + 120
    while time.monotonic() < until and not (FOLDER / "enough").exists():
        torch.ones(100).sum()
if WAY == "long":
    (FOLDER / f"ready{rank}").touch()
    time.sleep(60)
dist.all_reduce(torch.ones(1))
sys.stdout.write(f"done {rank}\n")
dist.destroy_process_group()
