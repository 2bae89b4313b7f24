"""Format numbers for people: sizes in binary units, times and rates with three significant digits.

This module also forms plurals and capital letters.
"""

from __future__ import annotations

from collections.abc import Iterable

BINARY = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def counted(count: int, name: str) -> str:
    """Return `count` with `name` in the singular or plural: `1 node`, `2 nodes`."""
    return f"{count} {name}{'' if count == 1 else 's'}"


def capitalized(text: str) -> str:
    """Return `text` with a capital first letter; all other letters stay as they are."""
    return text[:1].upper() + text[1:]


def numbers_text(numbers: Iterable[int]) -> str:
    """Return `numbers` as text, such as `3`, `0, 2` or `0-3, 8`.

    Three or more consecutive numbers become a range.
    """
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs)


def ranks_text(ranks: Iterable[int]) -> str:
    """Return `ranks` as text: `rank 3` or `ranks 0-3, 8`."""
    ranks = set(ranks)
    return f"rank{'s' * (len(ranks) > 1)} {numbers_text(ranks)}"


def size_text(size_bytes: int, digits: int = 0) -> str:
    """Return a size as text, such as `8 B`, `32 MiB` or `1.5 GiB`.

    If `digits` is not 0, the number has `digits` significant digits.
    """
    value, unit = float(size_bytes), 0
    while value >= 1024 and unit < len(BINARY) - 1:
        value, unit = value / 1024, unit + 1
    shown = f".{digits}g" if digits else ".0f" if value.is_integer() else ".1f"
    return f"{value:{shown}} {BINARY[unit]}"


def time_text(time_us: float) -> str:
    """Return a time in µs as `152 µs`, `3.54 ms` or `2.10 s`."""
    if time_us < 999.5:
        return f"{three_digits(time_us)} µs"
    if time_us < 999.5e3:
        return f"{three_digits(time_us / 1e3)} ms"
    return f"{three_digits(time_us / 1e6)} s"


def rate_text(rate_gb_s: float) -> str:
    """Return a rate in GB/s as `1.31 GB/s`."""
    return f"{three_digits(rate_gb_s)} GB/s"


def percent_text(share: float) -> str:
    """Return a ratio as a percentage with its sign, such as `+12.3%` for 0.123."""
    return f"{100 * share:+.1f}%"


def three_digits(value: float) -> str:
    """Return a positive number as text with three significant digits.

    From 1000 on, the text has all digits of the integer part.
    """
    if value >= 99.95:
        return f"{value:.0f}"
    if value >= 9.995:
        return f"{value:.1f}"
    return f"{value:.2f}" if value >= 0.00995 or value == 0 else f"{value:.1g}"


def decimal_text(size_bytes: float) -> str:
    """Return a size in bytes as text in decimal units, such as `21.0 GB` or `700 MB`."""
    return _scaled(size_bytes, ("kB", "MB", "GB", "TB", "PB")) or f"{size_bytes:.0f} B"


def seconds_text(value_s: float) -> str:
    """Return a time in seconds as `18 s`, `2.4 s`, `0.03 s` or `4,300 s`."""
    if value_s >= 9.95:
        return f"{value_s:,.0f} s"
    return f"{value_s:.1f} s" if value_s >= 0.95 or value_s == 0 else f"{value_s:.1g} s"


def duration_text(duration_s: float) -> str:
    """Return a duration in everyday form: `40 s`, `41 min`, `3.5 h`."""
    if duration_s < 120:
        return f"{duration_s:.0f} s"
    return f"{duration_s / 60:.0f} min" if duration_s < 7200 else f"{duration_s / 3600:.1f} h"


def count_text(count: int) -> str:
    """Return a number of parameters as `7.00 B`, `500 M` or `47.0 B`."""
    return _scaled(count, ("K", "M", "B", "T")) or str(count)


def _scaled(value: float, units: tuple[str, ...]) -> str:
    """Return a value as text in the largest unit of `units` that fits.

    Each unit is a thousand times the unit before it. If even the first unit is too large for the value, return "".
    """
    scales = [(1000.0**power, unit) for power, unit in enumerate(units, 1)]
    scale, unit = max((each for each in scales if value >= 0.9995 * each[0]), default=(0.0, ""))
    return f"{three_digits(value / scale)} {unit}" if unit else ""
