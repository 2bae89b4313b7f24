"""A rank of the real NCCL and torch that hangs in a way of tests/stuck/jobs/train.py: `... black_box_rank WAY DIR`.

Nothing of torch is replaced: what the ranks do needs no kernel but NCCL's and a fill.
"""

from __future__ import annotations

import importlib
import os
from pathlib import Path


def main() -> None:
    """Sum on the GPU, hang where it is this rank's turn, go on, and write the result."""
    train = importlib.import_module("tests.stuck.jobs.train")  # it reads WAY and DIR of the command line
    torch, dist = importlib.import_module("torch"), importlib.import_module("torch.distributed")
    rank, gpu = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(gpu)
    dist.init_process_group("nccl", device_id=torch.device("cuda", gpu))
    model = torch.nn.Linear(4, 4)  # on the CPU: only to be saved
    loss = torch.ones(1, device="cuda")
    for step in range(train.STEPS):
        dist.all_reduce(loss)
        loss.item()
        train.disturb(step, model)
    Path(train.place, f"result.{rank}").write_text(str(loss.item()))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
