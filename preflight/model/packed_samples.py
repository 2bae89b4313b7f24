"""Samples as they cross processes and hosts: the timings as text of 4 bytes each.

A trial of 8,192 ranks has millions of timings; as JSON numbers, reading and writing them takes node 0 most of a minute.
"""

from __future__ import annotations

import base64
import binascii
import math
import sys
from array import array
from typing import Any

from preflight.errors import MalformedInput
from preflight.model.run import RankSamples

MISFIT = "samples of a rank that don't fit together, or are no numbers"


def pack_samples(samples: RankSamples) -> dict[str, Any]:
    """Return a JSON object of a rank's samples; a timing keeps seven digits."""
    times = array("f", (*samples.barrier_us, *samples.call_us, *samples.gap_us))
    packed = base64.b64encode(_little_endian(times).tobytes()).decode()
    return {"rank": samples.rank, "wrong_elements": samples.wrong_elements, "times": packed}


def unpack_samples(value: Any) -> RankSamples:
    """Return the samples of a packed object; MalformedInput where it is none."""
    values = tuple(timings(value))
    count, rest = divmod(len(values), 3)
    if rest or not math.isfinite(sum(values)):
        raise MalformedInput(MISFIT)
    return RankSamples(
        rank_of(value), values[:count], values[count : 2 * count], values[2 * count :], wrong_elements(value)
    )


def timings(value: Any) -> array[float]:
    """Return the microseconds of a packed object: of all barriers, then calls, then gaps."""
    times = array("f")
    try:
        times.frombytes(binascii.a2b_base64(value["times"]))
    except (KeyError, TypeError, ValueError) as error:
        raise MalformedInput(f"samples of a rank that can't be read: {error}") from None
    return _little_endian(times)


def rank_of(value: Any) -> int:
    """Return whose samples a packed object holds."""
    return _whole(value, "rank")


def wrong_elements(value: Any) -> int:
    """Return how many elements of a packed object's step were wrong, without unpacking the rest."""
    return _whole(value, "wrong_elements")


def _whole(value: Any, name: str) -> int:
    found = value.get(name) if isinstance(value, dict) else None
    if not isinstance(found, int):
        raise MalformedInput(f"samples of a rank without {name}")
    return found


def _little_endian(times: array[float]) -> array[float]:
    if sys.byteorder == "big":
        times.byteswap()
    return times
