"""Convert ranks, GPUs, hosts, sizes and errors to text for reports of problems."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from preflight.model import units
from preflight.model.units import capitalized, size_text

MOST_HOSTS = 4


def fine_size(size_bytes: int) -> str:
    """Return a size in bytes as text with four digits, such as `62.99 GiB`.

    With four digits, similar sizes do not look equal.
    """
    return size_text(size_bytes, digits=4)


def ranks_text(ranks: Iterable[int]) -> str:
    """Return ranks as text such as `rank 1` or `ranks 1, 3-5`, or `an unknown rank` if `ranks` is empty."""
    named = set(ranks)
    return units.ranks_text(named) if named else "an unknown rank"


def first_line(text: str) -> str:
    """Return the first line of `text` that is not blank, without final periods, or "" if all lines are blank."""
    return next((line.strip().rstrip(".") for line in text.splitlines() if line.strip()), "")


def steps_text(steps: Iterable[str]) -> str:
    """Return `steps` as sentences in one text, without the final period."""
    first, *others = steps
    return ". ".join((first, *map(capitalized, others)))


def listed(gpus: Sequence[int]) -> str:
    """Return GPU indices as text in the form that `--gpus` takes, such as `0,1,6`."""
    return ",".join(map(str, gpus))


def first_hosts(hosts: Iterable[str]) -> str:
    """Return the first few host names as text, with the number of the remaining hosts."""
    return first_named(list(dict.fromkeys(hosts)), MOST_HOSTS)


def first_named(names: Sequence[str], most: int) -> str:
    """Return at most `most` names, and how many are left out, such as `a, b and 3 more`."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{', '.join(names[:most])}{more}"
