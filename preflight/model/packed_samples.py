"""Samples as they cross processes and hosts: the timings as text of 4 bytes each.

A trial of 8,192 ranks has millions of timings; as JSON numbers, reading and writing them takes node 0 most of a minute.
"""

from __future__ import annotations

import base64
import binascii
import math
import sys
from array import array
from collections.abc import Sequence
from typing import Any

from preflight.errors import MalformedInput
from preflight.model.run import RankSamples

TIMES = ("barrier_us", "call_us", "gap_us")


def pack_samples(samples: RankSamples) -> dict[str, Any]:
    """Return a JSON object of a rank's samples; a timing keeps seven digits."""
    packed = {name: _pack(getattr(samples, name)) for name in TIMES}
    return {"rank": samples.rank, "wrong_elements": samples.wrong_elements} | packed


def unpack_samples(value: Any) -> RankSamples:
    """Return the samples of a packed object; MalformedInput where it is none."""
    try:
        rank, wrong = value["rank"], value["wrong_elements"]
        barrier, call, gap = (_unpack(value[name]) for name in TIMES)
    except (KeyError, TypeError, ValueError, binascii.Error) as error:
        raise MalformedInput(f"samples of a rank that can't be read: {error}") from None
    if not isinstance(rank, int) or not isinstance(wrong, int) or not len(barrier) == len(call) == len(gap):
        raise MalformedInput("samples of a rank that don't fit together")
    return RankSamples(rank, barrier, call, gap, wrong)


def _pack(times: Sequence[float]) -> str:
    return base64.b64encode(_little_endian(array("f", times)).tobytes()).decode()


def _unpack(text: str) -> tuple[float, ...]:
    times = array("f")
    times.frombytes(base64.b64decode(text, validate=True))
    unpacked = tuple(_little_endian(times))
    if not all(map(math.isfinite, unpacked)):
        raise ValueError("a time that is no number")
    return unpacked


def _little_endian(times: array[float]) -> array[float]:
    if sys.byteorder == "big":
        times.byteswap()
    return times
