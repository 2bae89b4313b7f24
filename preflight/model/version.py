"""Comparing version numbers as others write them."""

from __future__ import annotations

import re


def version_tuple(text: str) -> tuple[int, ...]:
    """Return `2.13.0+cpu` as (2, 13, 0); empty where there is no number in front."""
    found = re.match(r"[vV]?(\d+(?:\.\d+)*)", text.strip())
    return tuple(int(part[:9]) for part in found.group(1).split(".")) if found else ()
