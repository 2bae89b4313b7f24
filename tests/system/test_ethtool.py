"""The kernel's answers about link modes; this machine has no adapter that gives one, so they are made here."""

from __future__ import annotations

import ctypes
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preflight.errors import UnreadableFact
from preflight.system.ethtool import GLINKSETTINGS, HEAD, IFREQ, SIOCETHTOOL, parse_masks, port_speeds

AUTONEG, FIBRE, FEC_RS = 6, 10, 50  # bits that are no speeds


def answer(words: int, *masks: tuple[int, ...], mbit_s: int = 100_000) -> bytes:
    """Return a struct ethtool_link_settings with these bits set in its masks: supported, advertised, the peer's."""
    head = HEAD.pack(GLINKSETTINGS, mbit_s, words, 0, 0, 0, 0)
    numbers = [sum(1 << bit for bit in mask) for mask in masks]
    return head + b"".join(struct.pack("=I", each >> 32 * i & 0xFFFFFFFF) for each in numbers for i in range(words))


def test_the_speeds_of_both_ends_are_read_from_the_link_modes() -> None:
    own = (
        AUTONEG,
        FIBRE,
        FEC_RS,
        31,
        38,
        59,
        66,
        89,
    )  # CR, CR4, CR2, CR4 and CR4 of 25 to 400 Gbit/s
    found = parse_masks(answer(4, own, own, (AUTONEG, 59, 66)))
    assert found == {"now": 100.0, "own": [25, 100, 200, 400], "both": [100, 200]}
    assert parse_masks(answer(4, own, (38,), (38, 66, 89)))["both"] == [100]  # the operator allows no more
    assert parse_masks(answer(4, own, (89,), (73,)))["both"] == []  # both have 400 Gbit/s, but on 4 and on 8 lanes
    assert parse_masks(answer(4, (93, 115, 121), (93,), ())) == {"now": 100.0, "own": [800, 1600], "both": None}
    assert parse_masks(answer(2, (5, AUTONEG), (), (AUTONEG,)))["own"] == []  # 1000baseT is too slow


@pytest.mark.parametrize(
    "data",
    [
        b"",
        HEAD.pack(GLINKSETTINGS, 0, 0, 0, 0, 0, 0),
        answer(4, (66,), (66,)),
        answer(4, (66,), (66,), (66,), mbit_s=0xFFFFFFFF),
    ],
)
def test_an_answer_without_masks_is_no_speed(data: bytes) -> None:
    with pytest.raises(UnreadableFact, match="does not report"):
        parse_masks(data)


@given(st.binary(max_size=400))
def test_any_answer_is_read_or_refused(data: bytes) -> None:
    try:
        found = parse_masks(data)
    except UnreadableFact:
        return
    assert set(found) == {"now", "own", "both"}


def test_the_kernel_is_asked_for_the_length_of_its_masks_first() -> None:
    asked = []

    def ioctl(_socket: object, request: int, argument: bytes) -> int:
        name, pointer = IFREQ.unpack(argument)
        words = HEAD.unpack(ctypes.string_at(pointer, HEAD.size))[2]
        asked.append((request, name.rstrip(b"\0"), words))
        said = answer(4, (66,), (66,), (66,)) if words == 4 else HEAD.pack(GLINKSETTINGS, 0, -4, 0, 0, 0, 0)
        ctypes.memmove(pointer, said, len(said))
        return 0

    assert port_speeds(["eth7"], ioctl) == {"eth7": {"now": 100.0, "own": [200], "both": [200]}}
    assert asked == [(SIOCETHTOOL, b"eth7", 0), (SIOCETHTOOL, b"eth7", 4)]


def test_this_kernel_answers_and_its_refusal_is_the_reason() -> None:
    found = port_speeds(["lo", "none7"])
    assert "not supported" in found["lo"]["unreadable"] and "No such device" in found["none7"]["unreadable"]
