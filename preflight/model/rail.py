"""What an RDMA port of a node carries by itself."""

from __future__ import annotations

from dataclasses import dataclass

from preflight.model.gap import Gap
from preflight.model.trial import Outcome


@dataclass(frozen=True, slots=True)
class RailTest:
    """A group of all ranks of the node whose data went through one port, with P2P and shared memory off."""

    hca: str
    port: int
    rate_gbit_s: float | Gap
    outcome: Outcome
    problem: str  # empty when ok
    transport: tuple[str, ...]  # what carried the data between ranks, such as NET/IB/0
    busbw_gb_s: float | Gap  # all_reduce at the largest size
