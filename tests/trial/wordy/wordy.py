"""A torch backend that fails as NCCL does where /dev/shm is too small: the reason stands in its own log only."""

from __future__ import annotations

import os
import socket
from datetime import timedelta
from typing import Any

import torch.distributed as dist
from torch._C._distributed_c10d import Store

SIMULATED = True


def _create(store: Store, rank: int, size: int, timeout: timedelta) -> Any:
    who = f"{socket.gethostname()}:{os.getpid()}:{os.getpid()} [{rank}]"
    path = os.environ["NCCL_DEBUG_FILE"].replace("%h", socket.gethostname()).replace("%p", str(os.getpid()))
    with open(path, "w", encoding="utf-8") as log:
        for channel in range(40):
            log.write(f"{who} NCCL INFO Channel {channel:02d}/0 : 0[0] -> 1[1] via SHM/direct/direct\n")
        if rank == 1:
            log.write(
                f"\n{who} misc/shmutils.cc:88 NCCL WARN Error: failed to extend /dev/shm/nccl-Ab12 to 9637892 bytes\n"
            )
            log.write(f"{who} NCCL INFO transport/shm.cc:551 -> 2\n")
    raise RuntimeError("NCCL error: unhandled system error (run with NCCL_DEBUG=INFO for details)")


dist.Backend.register_backend("wordy", _create, devices=["cpu"])
