"""How thorough a run is."""

from __future__ import annotations

from enum import Enum


class Profile(Enum):
    """How thorough a run is."""

    QUICK = "quick"
    STANDARD = "standard"
    BURN = "burn"
