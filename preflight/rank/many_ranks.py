"""What model/samples.py computes, for thousands of ranks at once: the same sums on tensors."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from preflight.model.run import RankSamples
from preflight.model.samples import slowdowns
from preflight.model.trial import RankTime


def rank_times_of_many(ranks: Sequence[RankSamples]) -> tuple[RankTime, ...]:
    """Return each rank's own share of the collective, in rank order; see model.samples.rank_times."""
    barrier, call, gap = (
        torch.tensor([getattr(rank, name) for rank in ranks], dtype=torch.float64)
        for name in ("barrier_us", "call_us", "gap_us")
    )
    own = call.min(dim=0).values + gap
    own[:, :-1] += barrier[:, 1:].max(dim=0).values - barrier[:, 1:] if own.shape[1] > 1 else 0.0
    counted = own[:, :-1] if own.shape[1] > 1 else own
    ordered, middle = counted.sort(dim=1).values, counted.shape[1] // 2
    medians = ordered[:, middle] if counted.shape[1] % 2 else (ordered[:, middle - 1] + ordered[:, middle]) / 2
    own_us: list[float] = medians.tolist()
    times = zip(ranks, own_us, slowdowns(own_us), strict=True)
    return tuple(sorted((RankTime(rank.rank, us, slow) for rank, us, slow in times), key=lambda time: time.rank))
