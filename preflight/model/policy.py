"""A site's policy for its nodes: the severity of each check, waivers, required properties and minimum speeds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from preflight.model.collective import Collective
from preflight.model.word import Word


class Level(Word):
    """The severity that a policy gives to a check's failures and warnings."""

    FATAL = "fatal"
    WARN = "warn"
    INFO = "info"


@dataclass(frozen=True, slots=True)
class Waiver:
    """A known problem that is accepted until the end of a date (ISO 8601)."""

    check: str
    subject: str  # part of the finding's subject; "" for any
    reason: str
    until: str


@dataclass(frozen=True, slots=True)
class Lookback:
    """The time before a run, in seconds, in which events still count.

    If a field is None, the events of this kind are not examined.
    """

    xids: float | None = None  # in the kernel log
    link_flaps: float | None = None  # links that went down and came up again: interfaces and RDMA ports


@dataclass(frozen=True, slots=True)
class Floor:
    """The minimum bus bandwidth that a policy requires of a collective, run with the default settings."""

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
