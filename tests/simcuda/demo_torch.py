"""One rank of a job that any user could write; test_torch.py starts several of it."""

from __future__ import annotations

import importlib
import os
import sys
from datetime import timedelta

import torch
import torch.distributed as dist


def main() -> None:
    """Initialise the group and sum a tensor."""
    importlib.import_module("tests.simcuda.simtorch")
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.cuda.set_device(rank)
    _say("device", torch.cuda.device_count(), torch.cuda.get_device_name(rank), torch.cuda.get_device_capability(rank))
    dist.init_process_group(
        "nccl", timeout=timedelta(seconds=int(os.environ.get("LIMIT_S", "30"))), device_id=torch.device("cuda", rank)
    )
    whole = torch.arange(100_000, dtype=torch.float32, device="cuda") % 7
    mine = whole + rank
    dist.all_reduce(mine)
    torch.cuda.synchronize()
    _say("right", bool((mine == whole * size + size * (size - 1) / 2).all().item()))
    gathered = torch.empty(size * 10, device="cuda")
    dist.all_gather_into_tensor(gathered, torch.full((10,), float(rank), device="cuda"))
    _say("gathered", gathered[::10].tolist())
    dist.barrier()
    dist.destroy_process_group()
    _say("done")


def _say(*words: object) -> None:
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
