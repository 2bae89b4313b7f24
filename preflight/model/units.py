"""Numbers as people read them: sizes in binary units, times and rates with three significant digits."""

from __future__ import annotations

BINARY = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def size_text(size_bytes: int) -> str:
    """Return `8 B`, `32 MiB`, `1.5 GiB`."""
    value, unit = float(size_bytes), 0
    while value >= 1024 and unit < len(BINARY) - 1:
        value, unit = value / 1024, unit + 1
    if value.is_integer():
        return f"{value:.0f} {BINARY[unit]}"
    return f"{value:.1f} {BINARY[unit]}"


def time_text(time_us: float) -> str:
    """Return `152 µs`, `3.54 ms`, `2.10 s`."""
    if time_us < 999.5:
        return f"{three_digits(time_us)} µs"
    if time_us < 999.5e3:
        return f"{three_digits(time_us / 1e3)} ms"
    return f"{three_digits(time_us / 1e6)} s"


def rate_text(rate_gb_s: float) -> str:
    """Return `1.31 GB/s`."""
    return f"{three_digits(rate_gb_s)} GB/s"


def percent_text(share: float) -> str:
    """Return `+12.3 %` for 0.123."""
    return f"{100 * share:+.1f} %"


def three_digits(value: float) -> str:
    """Return a positive number with three significant digits, as many as an integer needs above 1000."""
    if value >= 99.95:
        return f"{value:.0f}"
    if value >= 9.995:
        return f"{value:.1f}"
    return f"{value:.2f}" if value >= 0.00995 or value == 0 else f"{value:.1g}"


def decimal_text(size_bytes: float) -> str:
    """Return a size in the units that disks and models are sold in: `21.0 GB`, `700 MB`."""
    for unit, scale in (("PB", 1e15), ("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size_bytes >= 0.9995 * scale:
            return f"{three_digits(size_bytes / scale)} {unit}"
    return f"{size_bytes:.0f} B"


def seconds_text(value_s: float) -> str:
    """Return `18 s`, `2.4 s`, `0.03 s`, `4,300 s`."""
    if value_s >= 9.95:
        return f"{value_s:,.0f} s"
    return f"{value_s:.1f} s" if value_s >= 0.95 or value_s == 0 else f"{value_s:.1g} s"


def count_text(count: int) -> str:
    """Return a number of parameters: `7.00 B`, `500 M`, `47.0 B`."""
    for unit, scale in (("T", 1e12), ("B", 1e9), ("M", 1e6), ("K", 1e3)):
        if count >= 0.9995 * scale:
            return f"{three_digits(count / scale)} {unit}"
    return str(count)
