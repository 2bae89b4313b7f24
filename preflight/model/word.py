"""The base class of enums whose members are strings."""

from __future__ import annotations

from enum import Enum


class Word(str, Enum):
    """An enum whose members are equal to their string values and print as these strings."""

    __str__ = str.__str__
