"""How findings write amounts, ranks and the first line of an error."""

from __future__ import annotations

from collections.abc import Iterable

from preflight.model.facts import Limit


def size_text(size_bytes: int | Limit) -> str:
    """Return `64 MiB`, `1.5 GiB` or `unlimited`."""
    if isinstance(size_bytes, Limit):
        return size_bytes.value
    for exponent, unit in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        if abs(size_bytes) >= 1 << exponent:
            return f"{size_bytes / (1 << exponent):.4g} {unit}"
    return f"{size_bytes} B"


def ranks_text(ranks: Iterable[int]) -> str:
    """Return `rank 1` or `ranks 1, 3`; `no rank that could be named` where there is none."""
    listed = sorted(set(ranks))
    if not listed:
        return "no rank that could be named"
    return f"rank{'s' if len(listed) > 1 else ''} {', '.join(map(str, listed))}"


def first_line(text: str) -> str:
    """Return the first line that is not blank, without trailing full stops; empty where there is none."""
    return next((line.strip().rstrip(".") for line in text.splitlines() if line.strip()), "")
