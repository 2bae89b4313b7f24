"""Words for the ways between nodes that checks have in common."""

from __future__ import annotations

from collections.abc import Iterable

MOST_NAMED = 4


def first_hosts(hosts: Iterable[str]) -> str:
    """Return the hosts as a person lists them, the first few by name."""
    named = list(dict.fromkeys(hosts))
    more = f" and {len(named) - MOST_NAMED} more" if len(named) > MOST_NAMED else ""
    return f"{', '.join(named[:MOST_NAMED])}{more}"
