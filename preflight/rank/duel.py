"""From the two sides of a duel to its turns: the same collective at the same size, one side right after the other."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from preflight.model.run import DuelTurn
from preflight.model.samples import slowest_rank_us
from preflight.rank.outcome import RankAnswer, steps_of


def duel_turns(pair: int, default: Sequence[RankAnswer], candidate: Sequence[RankAnswer]) -> tuple[DuelTurn, ...]:
    """Return one turn per step that both sides finished; `pair` numbers the pair of process groups they ran in."""
    seen: dict[tuple[object, int], int] = {}
    turns = []
    for (collective, size_bytes, ours, _), (_, _, theirs, _) in zip(
        steps_of(default), steps_of(candidate), strict=False
    ):
        turn = seen[collective, size_bytes] = seen.get((collective, size_bytes), -1) + 1
        turns.append(
            DuelTurn(
                pair=pair,
                turn=turn,
                collective=collective,
                size_bytes=size_bytes,
                default_median_us=statistics.median(slowest_rank_us(ours)),
                candidate_median_us=statistics.median(slowest_rank_us(theirs)),
                verified=not any(rank.wrong_elements for rank in (*ours, *theirs)),
            )
        )
    return tuple(turns)
