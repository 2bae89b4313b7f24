"""What links can carry by generation, the rows of data/links.toml, and what healthy machines reach of it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class NvlinkRate:
    """One NVLink, one way; a row with a compute capability goes before one without."""

    generation: str
    gb_s_per_link: float
    source: str
    compute_capability: str = ""


@dataclass(frozen=True, slots=True)
class PcieRate:
    """One PCIe lane, one way, after encoding."""

    generation: int
    gb_s_per_lane: float
    source: str


@dataclass(frozen=True, slots=True)
class NvlsRule:
    """Above how many GPUs of a compute capability NCCL takes NVLS for all-reduce."""

    compute_capability: str
    above_gpus: int
    source: str


@dataclass(frozen=True, slots=True)
class Reach:
    """The healthy shares of a path's limit with large messages."""

    path: str
    low: float
    high: float
    source: str


@dataclass(frozen=True, slots=True)
class Curve:
    """How small messages fall behind."""

    hop_us: float
    source: str


@dataclass(frozen=True, slots=True)
class Links:
    """All rows."""

    nvlink: tuple[NvlinkRate, ...]
    pcie: tuple[PcieRate, ...]
    nvls: tuple[NvlsRule, ...]
    reach: tuple[Reach, ...]
    curve: tuple[Curve, ...]


@dataclass(frozen=True, slots=True)
class Expected:
    """A healthy busbw at one message size, and how it was worked out."""

    what: str  # "all_reduce"
    size_bytes: int
    path: str  # nvlink, nvls, pcie
    limit_gb_s: float  # what the slowest link carries one way; NVLS may exceed it, since it reduces in the switch
    low_gb_s: float
    high_gb_s: float
    formula: str
