"""The rates of links by generation, and the shares of these rates that healthy machines reach.

The values come from data/links.toml.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class NvlinkRate:
    """The one-way rate of one NVLink. A row with a compute capability takes precedence."""

    generation: str
    gb_s_per_link: float
    source: str
    compute_capability: str = ""


@dataclass(frozen=True, slots=True)
class PcieRate:
    """The one-way rate of one PCIe lane, without the encoding overhead."""

    generation: int
    gb_s_per_lane: float
    source: str


@dataclass(frozen=True, slots=True)
class NvlsRule:
    """The number of GPUs of one compute capability above which NCCL uses NVLS for all-reduce."""

    compute_capability: str
    above_gpus: int
    source: str


@dataclass(frozen=True, slots=True)
class Reach:
    """The shares of a path's rate that healthy machines reach with large messages, from `low` to `high`."""

    path: str
    low: float
    high: float
    source: str


@dataclass(frozen=True, slots=True)
class Curve:
    """The latency of each hop in microseconds. The latency limits the bandwidth of small messages."""

    hop_us: float
    source: str


@dataclass(frozen=True, slots=True)
class Links:
    """All rows of data/links.toml."""

    nvlink: tuple[NvlinkRate, ...]
    pcie: tuple[PcieRate, ...]
    nvls: tuple[NvlsRule, ...]
    reach: tuple[Reach, ...]
    curve: tuple[Curve, ...]


@dataclass(frozen=True, slots=True)
class Expected:
    """The range of bus bandwidths that healthy machines reach at one message size, and how it was computed."""

    what: str  # "all_reduce"
    size_bytes: int
    path: str  # nvlink, nvls, pcie
    limit_gb_s: float  # what the slowest link carries one way; NVLS may exceed it, since it reduces in the switch
    low_gb_s: float
    high_gb_s: float
    formula: str
