"""Parsers for durations, version numbers and integers, and errors for unknown names."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection
from decimal import Decimal

from preflight.errors import UsageError

NUMBER = r"(\d{1,6}(?:\.\d{1,6})?)"
DURATION = re.compile(rf"(?:{NUMBER}h)?(?:{NUMBER}m(?:in)?)?(?:{NUMBER}s)?", re.ASCII | re.IGNORECASE)
SECONDS = re.compile(NUMBER, re.ASCII)
LONGEST_S = 7 * 86400
SHOWN = 40  # characters of what was typed
FEW = 10  # names that an error lists


def version_tuple(text: str) -> tuple[int, ...]:
    """Return the numbers at the start of a version, such as (2, 13, 0) for `2.13.0+cpu`, or ()."""
    found = re.match(r"[vV]?(\d+(?:\.\d+)*)", text.strip())
    return tuple(int(part[:9]) for part in found.group(1).split(".")) if found else ()


def parsed_integer(value: str) -> tuple[int, str]:
    """Return the integer that strtoll with base 0 reads from `value`, and the remaining text.

    The result is (0, value) if `value` begins with no integer.
    """
    found = re.match(r"\s*([+-]?)(0[xX][0-9a-fA-F]+|0[0-7]*|[1-9][0-9]*)", value, re.ASCII)
    if found is None:
        return 0, value
    digits = found.group(2)
    base = 16 if digits[:2] in ("0x", "0X") else 8 if digits[0] == "0" else 10
    number = int(digits[:40], base)
    return (-number if found.group(1) == "-" else number), value[found.end() :]


def parse_duration_s(text: str, option: str) -> float:
    """Return the seconds of `90s`, `30m`, `1h30m`, `1.5h` or plain seconds.

    Raise UsageError, which names `option`, for any other text.
    """
    typed = text.strip()
    plain = SECONDS.fullmatch(typed)
    parts = DURATION.fullmatch(typed) if typed else None
    if plain:
        value = Decimal(plain[1])
    elif parts and any(parts.groups()):
        hours, minutes, seconds = (Decimal(part or 0) for part in parts.groups())
        value = 3600 * hours + 60 * minutes + seconds
    else:
        raise wrong(option, text, "not a time: write 90s, 30m, 1h30m or seconds")
    if not 0 < value <= LONGEST_S:
        raise wrong(option, text, "give a time above 0 and up to 7 days")
    return float(value)


def wrong(option: str, text: str, why: str) -> UsageError:
    """Return a UsageError with the text `OPTION TEXT: WHY`. A long `text` is cut."""
    shown = text if len(text) <= SHOWN else text[:SHOWN] + "..."
    return UsageError(f"{option} {shown}: {why}")


def no_such(where: str, what: str, name: str, known: Collection[str]) -> UsageError:
    """Return a UsageError for a `name` that is not in `known`, with suggestions.

    `where` is the option, and `what` is the kind of name.
    """
    return UsageError(f"{where}: there is no such {what}; {guess(name, known)}")


def guess(name: str, known: Collection[str]) -> str:
    """Return `did you mean NAME?` with names in `known` that are similar to `name`.

    If no name is similar, return all names, or the command that lists the names if there are many.
    """
    alike = ", ".join(difflib.get_close_matches(name.lower(), known, n=3))
    listed = f"there are {', '.join(known)}" if len(known) < FEW else "`preflight checks` lists them"
    return f"did you mean {alike}?" if alike else listed
