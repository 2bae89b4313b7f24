"""What links can carry by generation, and what healthy machines reach of it: the rows of data/links.toml."""

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
class NicRate:
    """One InfiniBand lane's data rate."""

    name: str
    gbit_s_per_lane: float
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
    nic: tuple[NicRate, ...]
    nvls: tuple[NvlsRule, ...]
    reach: tuple[Reach, ...]
    curve: tuple[Curve, ...]
