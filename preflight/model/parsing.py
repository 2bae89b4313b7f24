"""Version numbers as others write them, and integers as strtoll reads them."""

from __future__ import annotations

import re


def version_tuple(text: str) -> tuple[int, ...]:
    """Return `2.13.0+cpu` as (2, 13, 0); empty where there is no number in front."""
    found = re.match(r"[vV]?(\d+(?:\.\d+)*)", text.strip())
    return tuple(int(part[:9]) for part in found.group(1).split(".")) if found else ()


def parsed_integer(value: str) -> tuple[int, str]:
    """Return what strtoll with base 0 reads, and the text that it leaves; 0 and the whole text where it reads none."""
    found = re.match(r"\s*([+-]?)(0[xX][0-9a-fA-F]+|0[0-7]*|[1-9][0-9]*)", value, re.ASCII)
    if found is None:
        return 0, value
    digits = found.group(2)
    base = 16 if digits[:2] in ("0x", "0X") else 8 if digits[0] == "0" else 10
    number = int(digits[:40], base)
    return (-number if found.group(1) == "-" else number), value[found.end() :]
