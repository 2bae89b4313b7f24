"""One rank that trains a small model and tells by how much its memory grew: `train.py ddp|fsdp STORE RANK RANKS`."""

from __future__ import annotations

import gc
import json
import os
import sys
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch._C._distributed_c10d import FileStore
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

WIDTH, LAYERS = 2048, 24


def anonymous_bytes() -> int:
    """Return what this process holds beside files: its heap, not the libraries that it reads in."""
    gc.collect()
    with open("/proc/self/status", encoding="ascii") as file:
        (line,) = [line for line in file if line.startswith("RssAnon:")]
    return int(line.split()[1]) * 1024


def wrapped(strategy: str, model: nn.Sequential, world_size: int) -> Any:
    """Return the model as the strategy divides it."""
    if strategy == "ddp":
        return DistributedDataParallel(model)
    mesh = init_device_mesh("cpu", (world_size,))
    for layer in model:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


def train(strategy: str, width: int, layers: int, world_size: int) -> tuple[Any, torch.optim.Optimizer]:
    """Take two steps, since DDP arranges its buckets anew after the first; the gradients stay."""
    model = wrapped(strategy, nn.Sequential(*(nn.Linear(width, width, bias=False) for _ in range(layers))), world_size)
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(2):
        optimizer.zero_grad()
        model(torch.randn(1, width)).sum().backward()
        optimizer.step()
    return model, optimizer


def main() -> None:
    strategy, store, rank, world_size = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store=FileStore(store, world_size), rank=rank, world_size=world_size)
    train(strategy, 64, 2, world_size)  # what libraries take once is not the model's
    before = anonymous_bytes()
    model, optimizer = train(strategy, WIDTH, LAYERS, world_size)
    seen = {"params": WIDTH * WIDTH * LAYERS, "training": anonymous_bytes() - before}
    optimizer.zero_grad()
    if strategy == "fsdp":
        options = StateDictOptions(full_state_dict=True, cpu_offload=True)
        whole = get_model_state_dict(model, options=options)
        seen["save"] = anonymous_bytes() - before
        seen["saved_tensors"] = len(whole)
    sys.stdout.write(json.dumps(seen) + "\n")
    sys.stdout.flush()
    dist.barrier()
    os._exit(0)  # what is left to be torn down was measured


if __name__ == "__main__":
    main()
