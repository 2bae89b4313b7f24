"""Of a heavy group of tests `make test` and CI run a part, which the commit draws: in the long run all of them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable


def drawn(names: Iterable[str], one_in: int, by: str) -> set[str]:
    """Return one in so many of the names, rounded up; the same ones for the same commit."""
    by_hash = sorted(set(names), key=lambda name: hashlib.sha256(f"{by} {name}".encode()).digest())
    return set(by_hash[: -(-len(by_hash) // one_in)])
