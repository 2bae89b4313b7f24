"""A fact that could not be read, which every other record of facts may hold in a value's place."""

from __future__ import annotations

from dataclasses import dataclass

NO_ANSWER = "no answer within"  # how the reason begins where something stalled, which a healthy machine does not


@dataclass(frozen=True, slots=True)
class Gap:
    """A fact that could not be read. In JSON the value is null and `gaps[]` names its path and reason."""

    reason: str
