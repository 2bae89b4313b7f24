"""The computations of model/samples.py on tensors, for thousands of ranks at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from preflight.errors import MalformedInput
from preflight.model.collective import Collective
from preflight.model.samples import (
    MISFIT,
    Verification,
    rank_of,
    result_of,
    slowdowns,
    timings,
    verified_calls,
    wrong_elements,
)
from preflight.model.trial import CollectiveResult, RankTime

MOST_SHOWN = 64


def aggregate_many(collective: Collective, size_bytes: int, packed: Sequence[Any], took_s: float) -> CollectiveResult:
    """Return the result of one collective from the encoded samples of all ranks.

    `took_s` is the duration of the step in seconds.
    """
    # The computation is the same as in model.samples.aggregate.
    times = _tensor(packed)
    slowest_us: list[float] = times[:, 1].max(dim=0).values.tolist()
    proof = Verification(sum(map(wrong_elements, packed)), min(map(verified_calls, packed)))
    return result_of(collective, size_bytes, len(packed), slowest_us, proof, _rank_times(packed, times), took_s)


def _tensor(packed: Sequence[Any]) -> torch.Tensor:
    """Return the times of all ranks in microseconds, as a tensor of ranks x (barrier, call, gap) x repetitions.

    Raise MalformedInput if sizes don't match.
    """
    rows = [timings(each).tobytes() for each in packed]
    if len({len(row) for row in rows}) != 1 or len(rows[0]) % 12:
        raise MalformedInput(MISFIT)
    times = torch.frombuffer(bytearray(b"".join(rows)), dtype=torch.float32).reshape(len(rows), 3, -1).double()
    if not bool(times.sum().isfinite()):
        raise MalformedInput(MISFIT)
    return times


def _rank_times(packed: Sequence[Any], times: torch.Tensor) -> tuple[RankTime, ...]:
    """Return each shown rank's own share of the collective, in rank order.

    The share is defined in model.samples.rank_times. With many ranks, only the fastest rank and the slowest ranks are
    shown. Otherwise, a report of 8,192 ranks would hold little else.
    """
    barrier, call, gap = times.unbind(dim=1)
    own = call.min(dim=0).values + gap
    own[:, :-1] += barrier[:, 1:].max(dim=0).values - barrier[:, 1:] if own.shape[1] > 1 else 0.0
    counted = own[:, :-1] if own.shape[1] > 1 else own
    ordered, middle = counted.sort(dim=1).values, counted.shape[1] // 2
    medians = ordered[:, middle] if counted.shape[1] % 2 else (ordered[:, middle - 1] + ordered[:, middle]) / 2
    own_us: list[float] = medians.tolist()
    by_time = sorted(zip(own_us, slowdowns(own_us), map(rank_of, packed), strict=True))
    shown = by_time if len(by_time) <= MOST_SHOWN else [by_time[0], *by_time[1 - MOST_SHOWN :]]
    return tuple(sorted((RankTime(rank, us, slow) for us, slow, rank in shown), key=lambda time: time.rank))
