"""Comparing version numbers: where the checks look for it."""

from __future__ import annotations

from preflight.model.version import version_tuple

__all__ = ["version_tuple"]
