"""What a site decides for its nodes: how much each check matters, what is waived, what a node must have and reach."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from preflight.model.collective import Collective


class Level(Enum):
    """How much a check's failures and warnings matter here."""

    FATAL = "fatal"
    WARN = "warn"
    INFO = "info"


@dataclass(frozen=True, slots=True)
class Waiver:
    """A problem that is known and accepted until a day (ISO 8601, the last one on which it holds)."""

    check: str
    subject: str  # part of the finding's subject; "" for any
    reason: str
    until: str


@dataclass(frozen=True, slots=True)
class Lookback:
    """How far back from a run is looked, in seconds; None where the policy does not say."""

    xids: float | None = None  # in the kernel log
    link_flaps: float | None = None  # links that went down and came up again: interfaces and RDMA ports


@dataclass(frozen=True, slots=True)
class Floor:
    """The least bus bandwidth of the default settings."""

    collective: Collective
    size_bytes: int
    busbw_gb_s: float


@dataclass(frozen=True, slots=True)
class Policy:
    """A policy file, read on `today` (ISO 8601)."""

    source: str
    today: str
    levels: tuple[tuple[str, Level], ...] = ()
    waivers: tuple[Waiver, ...] = ()
    expect: Mapping[str, Any] = field(default_factory=dict)  # what a node must have, by the keys of judge/expectations
    floors: tuple[Floor, ...] = ()
    lookback: Lookback = Lookback()
