"""The base class of closed sets of words, such as the verdicts."""

from __future__ import annotations

from enum import Enum


class Word(str, Enum):
    """A word of a closed set: a member equals its text, prints as its text, and `Kind(text)` returns it."""

    __str__ = str.__str__
