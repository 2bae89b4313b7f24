"""Time one collective at one size on this rank, and verify its data."""

from __future__ import annotations

import random
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.distributed as dist

from preflight.model.run_spec import Measure, RankSamples
from preflight.trial.rank.buffers import ELEMENT_BYTES, LONG_CALL_S, Buffers, Ranks, allocate, caller
from preflight.trial.rank.verify import TimedVerification, Work, count_wrong

# Repetitions before the timed ones. The ranks come out of the agreement apart, one of them from sleep, and the first
# two repetitions after it took up to 60% longer (scripts/bench_accuracy.py, gloo, 64 KiB).
LEAD_IN = 4
SEEDS = 1 << 31
Agree = Callable[[str, int], int]  # rank 0's number for everybody
Call = Callable[[], object]
Times = tuple[float, float, float]  # microseconds in the barrier, in the call, and between the two


@dataclass(frozen=True, slots=True)
class Repetitions:
    """The measurements of one rank from all repetitions of one collective."""

    times: tuple[Times, ...]
    verified_calls: int  # of the repetitions
    wrong_elements: int  # in the worst verified call
    spread_elements: int  # in the worst of the other calls, if they are in place


def time_repetitions(measure: Measure, buffers: Buffers, call: Call, ranks: Ranks, agree: Agree) -> Repetitions:
    """Return the times of all repetitions of `call`, and the result of the verified repetitions.

    `agree(name, value)` returns rank 0's value on every rank.
    """
    # Rank 0's warm-up sets the number of repetitions, and a random seed of rank 0 selects the repetitions to verify.
    # The other repetitions send zeros, which does not change the time of a transfer.
    estimate_s = _timed(call, ranks)
    lead_in = agree("lead-in", 1 if estimate_s > LONG_CALL_S else LEAD_IN)
    if lead_in > 1:
        estimate_s = min(estimate_s, _timed(call, ranks))
    wanted = int(measure.budget_s / max(estimate_s, 1e-6))
    repetitions = agree("repetitions", max(measure.min_repetitions, min(measure.max_repetitions, wanted)))
    seed = agree("seed", secrets.randbelow(SEEDS))
    places = drawn_places(lead_in, repetitions, measure.verified_calls, seed)
    verification = TimedVerification(measure.collective, buffers, ranks, places, seed)
    taken = [time_once(call, ranks, verification.work_before(place)) for place in range(lead_in + repetitions)]
    ranks.barrier()  # a rank that is through must not take the processor from one that is still in its last call
    verification.finish()
    return Repetitions(tuple(taken[lead_in:]), *verification.found)


def drawn_places(lead_in: int, repetitions: int, verified_calls: int, seed: int) -> frozenset[int]:
    """Choose `verified_calls` of the timed calls at random, and return the numbers of these calls.

    The same `seed` gives the same numbers.
    """
    # Calls are numbered from 0. The first `lead_in` calls are not timed, and the next `repetitions` calls are timed.
    timed = range(lead_in, lead_in + repetitions)
    return frozenset(random.Random(seed).sample(timed, min(verified_calls, repetitions)))


def time_once(call: Call, ranks: Ranks, work: Work | None = None) -> Times:
    """Return the three times of one repetition in microseconds: barrier, call and pause.

    These times are the wait at the barrier, the duration of the call, and the pause between the barrier and the call.
    If `work` is given, `work` and a second barrier run between the first barrier and the call. The times do not include
    `work` and the second barrier.
    """
    arrived = time.perf_counter_ns()
    ranks.barrier()
    met = left = time.perf_counter_ns()
    if work is not None:
        work()
        ranks.barrier()
        left = time.perf_counter_ns()
    entered = time.perf_counter_ns()
    call()
    ranks.synchronize()
    done = time.perf_counter_ns()
    return (met - arrived) / 1e3, (done - entered) / 1e3, (entered - left) / 1e3


def _timed(call: Call, ranks: Ranks) -> float:
    start = time.perf_counter()
    call()
    ranks.synchronize()
    return time.perf_counter() - start


def measure_collective(measure: Measure, ranks: Ranks, agree: Agree) -> tuple[int, RankSamples]:
    """Measure a collective, and return (size in bytes of the larger buffer, samples of this rank)."""
    # One call before the timing, one call after the timing, and some of the timed calls are verified.
    buffers = allocate(measure.collective, measure.nominal_bytes, ranks)
    samples = measure_call(measure, buffers, caller(measure.collective, buffers, ranks), ranks, agree)
    return max(buffers.send.numel(), buffers.receive.numel()) * ELEMENT_BYTES, samples


def measure_call(measure: Measure, buffers: Buffers, call: Call, ranks: Ranks, agree: Agree) -> RankSamples:
    """Measure and verify `call`, which runs a collective on `buffers`, and return this rank's samples."""
    wrong = count_wrong(measure.collective, buffers, ranks, call)
    buffers.send.zero_()
    timed = time_repetitions(measure, buffers, call, ranks, agree)
    own = max(wrong, timed.wrong_elements, count_wrong(measure.collective, buffers, ranks, call, salt=1))
    wrong, is_spread = own or timed.spread_elements, own == 0 and timed.spread_elements > 0
    barrier_us, call_us, gap_us = zip(*timed.times, strict=True)
    return RankSamples(ranks.rank, barrier_us, call_us, gap_us, wrong, timed.verified_calls, is_spread)


def prove_first(ranks: Ranks) -> int:
    """Run the group's first collective, in which NCCL connects. Return 1 if the sum is wrong, or else 0."""
    ones = torch.ones(1, dtype=torch.float32, device=ranks.device)
    dist.all_reduce(ones)
    ranks.synchronize()
    return int(ones.item() != ranks.world_size)
