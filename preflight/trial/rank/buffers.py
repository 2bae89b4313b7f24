"""The tensors of one collective, the rank's position, and the collective call that is timed and verified."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import torch
import torch.distributed as dist

from preflight.model.collective import Collective, element_count

ELEMENT_BYTES = 4  # float32
LONG_CALL_S = 0.02  # beside which what the ranks come apart by is little: one warm-up and one repetition lead in
PAUSE_S = 1e-4  # between looks at a long call; a short one is looked at without a pause
TORCH_VERSION = tuple(int(word) for word in re.findall(r"\d+", torch.__version__)[:2])
GLOO_GATHERS_INTO_TENSORS = TORCH_VERSION >= (2, 3)  # 2.1 does not


@dataclass(frozen=True, slots=True)
class Buffers:
    """The tensors of one collective. For all_reduce and broadcast, `send` and `receive` are the same tensor."""

    send: torch.Tensor
    receive: torch.Tensor


@dataclass(frozen=True, slots=True)
class Ranks:
    """This rank's number, its device, and the time limit of calls on the device."""

    rank: int
    world_size: int
    device: torch.device
    until: float = math.inf  # monotonic time by which this step should be over
    least_s: float = 0.0  # seconds that even a call that begins late has

    def synchronize(self) -> None:
        """Wait until the device has finished. Raise TimeoutError if the deadline has passed."""
        # On GPUs, this method avoids torch's blocking calls, because a blocking call never returns from a hung
        # collective.
        if self.device.type != "cuda":
            return
        event: Any = cast(Any, torch.cuda).Event()
        event.record()
        since = time.monotonic()
        while not event.query():
            now = time.monotonic()
            if now > max(self.until, since + self.least_s):
                raise TimeoutError(f"timed out: the GPU had not finished the call {now - since:.1f} s after it began")
            time.sleep(PAUSE_S if now - since > LONG_CALL_S else 0)

    def barrier(self) -> None:
        """Wait until all ranks of the group have called this method.

        On GPUs the barrier is an all_reduce of one element, because NCCL's own barrier waits without a limit.
        """
        if self.device.type == "cuda":
            dist.all_reduce(torch.zeros(1, dtype=torch.float32, device=self.device))
        else:
            dist.barrier()
        self.synchronize()


def allocate(collective: Collective, nominal_bytes: int, ranks: Ranks) -> Buffers:
    """Return float32 buffers of zeros for `collective`. The larger buffer has about `nominal_bytes` bytes.

    The size is rounded so that each rank has the same number of elements.
    """
    count = element_count(collective, nominal_bytes, ranks.world_size, ELEMENT_BYTES)
    whole = torch.zeros(count, dtype=torch.float32, device=ranks.device)
    match collective:
        case Collective.ALL_REDUCE | Collective.BROADCAST:
            return Buffers(whole, whole)
        case Collective.ALL_GATHER:
            return Buffers(torch.zeros(count // ranks.world_size, dtype=torch.float32, device=ranks.device), whole)
        case Collective.REDUCE_SCATTER:
            return Buffers(whole, torch.zeros(count // ranks.world_size, dtype=torch.float32, device=ranks.device))
        case Collective.ALL_TO_ALL:
            return Buffers(whole, torch.zeros_like(whole))


def caller(collective: Collective, buffers: Buffers, ranks: Ranks) -> Callable[[], object]:
    """Return a function that calls `collective` on `buffers` once.

    The torch function is looked up only once, because torch 2.13 warns at every further look-up.
    """
    match collective:
        case Collective.ALL_REDUCE:
            return lambda: dist.all_reduce(buffers.receive)
        case Collective.BROADCAST:
            return lambda: dist.broadcast(buffers.receive, 0)
        case Collective.ALL_GATHER:
            if ranks.device.type == "cpu" and not GLOO_GATHERS_INTO_TENSORS:
                shares = list(buffers.receive.chunk(ranks.world_size))
                return lambda: dist.all_gather(shares, buffers.send)
            gather = _function("all_gather_single", "all_gather_into_tensor")
            return lambda: gather(buffers.receive, buffers.send)
        case Collective.REDUCE_SCATTER:
            scatter = _function("reduce_scatter_single", "reduce_scatter_tensor")
            return lambda: scatter(buffers.receive, buffers.send)
        case Collective.ALL_TO_ALL:
            return lambda: dist.all_to_all_single(buffers.receive, buffers.send)


def _function(*names: str) -> Callable[..., object]:
    """Return the first function in `names` that this version of torch.distributed has."""
    return next(cast(Callable[..., object], getattr(dist, name)) for name in names if hasattr(dist, name))
