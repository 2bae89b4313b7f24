"""Read the table of link rates from data/links.toml."""

from __future__ import annotations

import functools
from importlib import resources

from preflight.model.codec import decode
from preflight.model.links import Links
from preflight.model.toml import read_toml


@functools.cache
def load_links() -> Links:
    """Return the table of link rates."""
    text = (resources.files("preflight") / "data" / "links.toml").read_text(encoding="utf-8")
    tables = read_toml(text, "links.toml")
    for row in tables["nvlink"]:
        row.setdefault("compute_capability", "")
    return decode(Links, tables)
