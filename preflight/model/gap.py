"""A fact that could not be read, which every other record of facts may hold in a value's place."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Gap:
    """A fact that could not be read. In JSON the value is null and `gaps[]` names its path and reason."""

    reason: str
