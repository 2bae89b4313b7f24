"""What healthy links should give, which measurements are held against."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Expected:
    """A healthy busbw at one message size, and how it was worked out."""

    what: str  # "all_reduce", or "network" for the sum of a node's ports
    size_bytes: int
    path: str  # nvlink, nvls, pcie, nic
    limit_gb_s: float  # what the slowest link carries one way; NVLS may exceed it, since it reduces in the switch
    low_gb_s: float
    high_gb_s: float
    formula: str
