"""What node 0's conductor reads after a step: its own ranks' answers one by one, every other node's in one file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

from preflight.errors import HarnessError
from preflight.rank.channel import Channel


def collect(
    channel: Channel, index: int, world_size: int, node_sizes: Sequence[int], until: Callable[[], float]
) -> list[Any]:
    """Return what every rank published for a step, by rank; HarnessError names the first that gave none in time.

    `until` gives the monotonic time until which to wait for the next one. Node sizes are empty on a single node.
    """
    own = node_sizes[0] if node_sizes else world_size
    answers = []
    for rank in range(own):
        answers.append(_wait_and_get(channel, f"end/{index}/{rank}", rank, until()))
    for first, count in zip(accumulate(node_sizes), node_sizes[1:], strict=False):
        told = _wait_and_get(channel, f"ends/{index}/{first}", first, until())
        answers += [told[str(rank)] for rank in range(first, first + count)]
    return answers


def _wait_and_get(channel: Channel, key: str, rank: int, until: float) -> Any:
    if not channel.wait(key, until):
        raise HarnessError(f"the supervisor of rank {rank} gave no answer in time")
    return channel.get(key)
