"""Time one collective at one size on this rank, and prove that its data are right."""

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
from preflight.model.run_spec import Measure, RankSamples

ELEMENT_BYTES = 4  # float32
# Repetitions before the timed ones. The ranks come out of the agreement apart, one of them from sleep, and the first
# two repetitions after it took up to 60 % longer (scripts/bench_accuracy.py, gloo, 64 KiB).
LEAD_IN = 4
LONG_CALL_S = 0.02  # beside which what the ranks come apart by is little: one warm-up and one repetition lead in
PAUSE_S = 1e-4  # between looks at a long call; a short one is looked at without a pause
TORCH_VERSION = tuple(int(word) for word in re.findall(r"\d+", torch.__version__)[:2])
GLOO_GATHERS_INTO_TENSORS = TORCH_VERSION >= (2, 3)  # 2.1 does not
Agree = Callable[[str, int], int]  # rank 0's number for everybody


@dataclass(frozen=True, slots=True)
class Buffers:
    """The tensors of one collective: `send` and `receive` are the same for all_reduce and broadcast."""

    send: torch.Tensor
    receive: torch.Tensor


@dataclass(frozen=True, slots=True)
class Ranks:
    """Where this rank stands, on which device it computes, and how long calls may take there."""

    rank: int
    world_size: int
    device: torch.device
    until: float = math.inf  # on the monotonic clock: this step should be over
    least_s: float = 0.0  # what a call has nonetheless that begins late

    def synchronize(self) -> None:
        """Wait until the device has finished; TimeoutError where it has not in time. On the CPU calls return finished.

        No call of torch's is waited in: a hung collective never leaves it, and the rank could not say so.
        """
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
        """Meet the other ranks. On GPUs by a sum of one element, as NCCL's own, which waits without an end."""
        if self.device.type == "cuda":
            dist.all_reduce(torch.zeros(1, dtype=torch.float32, device=self.device))
        else:
            dist.barrier()
        self.synchronize()


def allocate(collective: Collective, nominal_bytes: int, ranks: Ranks) -> Buffers:
    """Return zeroed float32 buffers; S (facts: total or per rank) is `receive` or `send`, whichever is larger."""
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
    """Return the call to time. The name of the function is resolved once: torch 2.13 warns at every other look-up."""
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
    """Return the first of these that this torch has."""
    return next(cast(Callable[..., object], getattr(dist, name)) for name in names if hasattr(dist, name))


def count_wrong(collective: Collective, buffers: Buffers, ranks: Ranks, call: Callable[[], object]) -> int:
    """Run the collective once on rank-dependent whole numbers and return how many elements came out wrong.

    All values and sums are small whole numbers, so float32 holds them exactly and any order of summing is right.
    """
    if buffers.send.data_ptr() == buffers.receive.data_ptr():
        buffers.receive.copy_(_pattern(ranks.rank, buffers.receive.numel(), ranks.device))
    else:
        buffers.receive.fill_(-1.0)
        buffers.send.copy_(_pattern(ranks.rank, buffers.send.numel(), ranks.device))
    call()
    ranks.synchronize()
    expected = _expected(collective, buffers, ranks)
    return int(torch.count_nonzero(buffers.receive != expected).item())


def _pattern(rank: int, count: int, device: torch.device) -> torch.Tensor:
    """Return `count` values below 2**14 that differ between ranks and between neighbouring elements."""
    values = torch.arange(count, dtype=torch.int32, device=device)
    return values.mul_(7).add_(rank * 131 + 1).remainder_(8191).add_(rank).to(torch.float32)


def _expected(collective: Collective, buffers: Buffers, ranks: Ranks) -> torch.Tensor:
    n, device = ranks.world_size, ranks.device
    count = buffers.receive.numel()
    match collective:
        case Collective.ALL_REDUCE:
            return _sum_of_patterns(n, count, device)
        case Collective.BROADCAST:
            return _pattern(0, count, device)
        case Collective.ALL_GATHER:
            return torch.cat([_pattern(rank, count // n, device) for rank in range(n)])
        case Collective.REDUCE_SCATTER:
            return _sum_of_patterns(n, count * n, device)[ranks.rank * count : (ranks.rank + 1) * count]
        case Collective.ALL_TO_ALL:
            share = count // n
            here = slice(ranks.rank * share, (ranks.rank + 1) * share)
            return torch.cat([_pattern(rank, count, device)[here] for rank in range(n)])


def _sum_of_patterns(world_size: int, count: int, device: torch.device) -> torch.Tensor:
    total = _pattern(0, count, device)
    for rank in range(1, world_size):
        total += _pattern(rank, count, device)
    return total


def time_repetitions(
    measure: Measure, call: Callable[[], object], ranks: Ranks, agree: Agree
) -> tuple[list[float], list[float], list[float]]:
    """Return the microseconds of every repetition: in the barrier, in the call, and between the two.

    The number of repetitions follows from rank 0's warm-up, so that all ranks do the same number. Buffers hold zeros
    or sums that grow; their values do not change how long the transfer takes.
    """
    estimate_s = _timed(call, ranks)
    lead_in = agree("lead-in", 1 if estimate_s > LONG_CALL_S else LEAD_IN)
    if lead_in > 1:
        estimate_s = min(estimate_s, _timed(call, ranks))
    wanted = int(measure.budget_s / max(estimate_s, 1e-6))
    repetitions = agree("repetitions", max(measure.min_repetitions, min(measure.max_repetitions, wanted)))
    taken = [time_once(call, ranks) for _ in range(lead_in + repetitions)][lead_in:]
    ranks.barrier()  # a rank that is through must not take the processor from one that is still in its last call
    return [each[0] for each in taken], [each[1] for each in taken], [each[2] for each in taken]


def time_once(call: Callable[[], object], ranks: Ranks) -> tuple[float, float, float]:
    """Return the microseconds of one repetition: in the barrier, in the call, and between the two."""
    arrived = time.perf_counter_ns()
    ranks.barrier()
    left = time.perf_counter_ns()
    entered = time.perf_counter_ns()
    call()
    ranks.synchronize()
    done = time.perf_counter_ns()
    return (left - arrived) / 1e3, (done - entered) / 1e3, (entered - left) / 1e3


def _timed(call: Callable[[], object], ranks: Ranks) -> float:
    start = time.perf_counter()
    call()
    ranks.synchronize()
    return time.perf_counter() - start


def measure_collective(measure: Measure, ranks: Ranks, agree: Agree) -> tuple[int, RankSamples]:
    """Return the size in bytes that was really moved and this rank's samples, verified before and after the timing."""
    buffers = allocate(measure.collective, measure.nominal_bytes, ranks)
    call = caller(measure.collective, buffers, ranks)
    wrong = count_wrong(measure.collective, buffers, ranks, call)
    buffers.send.zero_()
    barrier_us, call_us, gap_us = time_repetitions(measure, call, ranks, agree)
    wrong = max(wrong, count_wrong(measure.collective, buffers, ranks, call))
    size_bytes = max(buffers.send.numel(), buffers.receive.numel()) * ELEMENT_BYTES
    return size_bytes, RankSamples(ranks.rank, tuple(barrier_us), tuple(call_us), tuple(gap_us), wrong)


def prove_first(ranks: Ranks) -> int:
    """Run the group's first collective, in which NCCL makes its connections; return 1 when the sum is wrong, else 0."""
    ones = torch.ones(1, dtype=torch.float32, device=ranks.device)
    dist.all_reduce(ones)
    ranks.synchronize()
    return int(ones.item() != ranks.world_size)
