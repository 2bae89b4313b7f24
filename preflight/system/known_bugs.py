"""Read the table of known bugs from data/known_bugs.toml."""

from __future__ import annotations

import functools
from importlib import resources

from preflight.model.known_bugs import Effect, KnownBug, Sureness
from preflight.model.toml import read_toml


@functools.cache
def load_known_bugs() -> tuple[KnownBug, ...]:
    """Return the table of known bugs."""
    text = (resources.files("preflight") / "data" / "known_bugs.toml").read_text(encoding="utf-8")
    rows = read_toml(text, "known_bugs.toml")["row"]
    return tuple(KnownBug(**{**row, "effect": Effect(row["effect"]), "sure": Sureness(row["sure"])}) for row in rows)
