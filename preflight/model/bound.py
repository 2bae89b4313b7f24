"""Thresholds that decide a verdict, with their reasons. docs/reference/numbers.md lists these thresholds."""

from __future__ import annotations

from dataclasses import dataclass

JUDGMENT = "judgment"  # the value was not measured; a better one is welcome


@dataclass(frozen=True, slots=True)
class Bound:
    """A threshold with its unit, the reason for its value, and the cost of a wrong value."""

    # Define a threshold in the module that uses the threshold. Each check lists its thresholds in `bounds`.

    value: float
    unit: str  # the words after the value: "of the median GPU", "bytes per rank"
    reason: str
    source: str  # an address, a study below scripts/studies/, a section of docs/, or JUDGMENT
    cost: str  # of a wrong value: who is rejected or missed

    @property
    def whole(self) -> int:
        """The threshold as an integer, for a number of bytes, ranks or files."""
        return int(self.value)
