"""The kernel's answers about traffic classes; this machine has no adapter that gives one, so they are made here."""

from __future__ import annotations

import socket
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preflight.errors import UnreadableFact
from preflight.system.dcb import (
    ANSWER_BYTES,
    APP,
    APP_TABLE,
    BY_DSCP,
    DCBMSG,
    HEADER,
    IEEE,
    NLMSG_ERROR,
    PFC,
    RTM_GETDCB,
    parse_answer,
    request,
)

NESTED = 0x8000


def attribute(kind: int, value: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(value), kind) + value + b"\0" * (-len(value) % 4)


def answer(*attributes: bytes) -> bytes:
    body = DCBMSG.pack(0, 21, 0) + b"".join(attributes)
    return HEADER.pack(HEADER.size + len(body), RTM_GETDCB, 0, 1, 0) + body


def pfc(enabled: int) -> bytes:
    return attribute(PFC, struct.pack("=BBBxH2x", 8, enabled, 0, 0) + bytes(128))


def test_priorities_with_flow_control_and_dscps_are_read() -> None:
    rows = [(BY_DSCP, 3, 26), (2, 6, 48), (BY_DSCP, 0, 0)]  # the second one is a TCP port's
    table = attribute(APP_TABLE | NESTED, b"".join(attribute(APP, struct.pack("=BBH", *row)) for row in rows))
    data = answer(attribute(1, b"eth0\0"), attribute(IEEE | NESTED, pfc(0b00001001) + table))
    assert parse_answer(data) == {"pfc": [0, 3], "dscp": [[0, 0], [26, 3]]}


def test_a_driver_without_an_answer_is_not_called_off() -> None:
    with pytest.raises(UnreadableFact, match="does not report"):
        parse_answer(answer(attribute(IEEE | NESTED, b"")))


@pytest.mark.parametrize(("code", "words"), [(95, "not supported"), (19, "No such device"), (-1, "an error")])
def test_the_kernels_refusal_is_the_reason(code: int, words: str) -> None:
    refusal = HEADER.pack(36, NLMSG_ERROR, 0, 1, 0) + struct.pack("=i", -code) + bytes(16)
    with pytest.raises(UnreadableFact, match=words):
        parse_answer(refusal)


@given(st.binary(max_size=200), st.integers(0, 80))
def test_any_bytes_are_an_answer_or_our_error(noise: bytes, cut: int) -> None:
    for data in (noise, answer(attribute(IEEE | NESTED, pfc(9)))[:cut] + noise, answer(noise)):
        try:
            found = parse_answer(data)
        except UnreadableFact:
            continue
        assert set(found["pfc"]) <= set(range(8)) and all(len(row) == 2 for row in found["dscp"])


def test_the_live_kernel_understands_the_question() -> None:
    """It answers that loopback has no traffic classes; a message that it did not understand would be EINVAL."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as kernel:
        kernel.settimeout(5)
        kernel.send(request("lo"))
        with pytest.raises(UnreadableFact, match="not supported"):
            parse_answer(kernel.recv(ANSWER_BYTES))
