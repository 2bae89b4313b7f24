"""Read data/known_bugs.toml, which is next to the code in the wheel; no other module reads it."""

from __future__ import annotations

import functools
from importlib import resources

from preflight.model.known_bugs import Effect, KnownBug, Sureness
from preflight.model.toml import read_toml


@functools.cache
def load_known_bugs() -> tuple[KnownBug, ...]:
    """Return the table of known bugs.

    The file is part of the program, so an invalid row is a defect and raises an exception.
    """
    text = (resources.files("preflight") / "data" / "known_bugs.toml").read_text(encoding="utf-8")
    rows = read_toml(text, "known_bugs.toml")["row"]
    return tuple(KnownBug(**{**row, "effect": Effect(row["effect"]), "sure": Sureness(row["sure"])}) for row in rows)
