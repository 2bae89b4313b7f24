"""A time as people write it: 90s, 30m, 1h30m, 1.5h, or plain seconds."""

from __future__ import annotations

import re
from decimal import Decimal

from preflight.errors import UsageError

NUMBER = r"(\d{1,6}(?:\.\d{1,6})?)"
DURATION = re.compile(rf"(?:{NUMBER}h)?(?:{NUMBER}m(?:in)?)?(?:{NUMBER}s)?", re.ASCII | re.IGNORECASE)
SECONDS = re.compile(NUMBER, re.ASCII)
LONGEST_S = 7 * 86400
SHOWN = 40  # characters of what was typed


def parse_duration_s(text: str, option: str) -> float:
    """Parse `90s`, `30m`, `1h30m`, `1.5h` or plain seconds into seconds."""
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
    """Return the error of a value that is not understood."""
    shown = text if len(text) <= SHOWN else text[:SHOWN] + "..."
    return UsageError(f"{option} {shown}: {why}")
