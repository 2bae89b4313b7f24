"""Which interface carries a connection, from the kernel's socket tables."""

from __future__ import annotations

import ipaddress
import socket
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preflight.errors import UnreadableFact
from preflight.trial.rank.sockets import connected_netifs, parse_address


def kernel_text(address: str, port: int = 8080) -> str:
    """Write an address as /proc/net/tcp and tcp6 do: each 32-bit word as a number of this machine."""
    packed = ipaddress.ip_address(address).packed
    words = struct.unpack(f"={len(packed) // 4}I", packed)
    return "".join(f"{word:08X}" for word in words) + f":{port:04X}"


@pytest.mark.skipif(struct.pack("=I", 1) != struct.pack("<I", 1), reason="the vectors are of a little-endian machine")
@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("0100007F:1F90", "127.0.0.1"),
        ("0500000A:0016", "10.0.0.5"),
        ("00000000:0000", "0.0.0.0"),
        ("00000000000000000000000001000000:1F90", "::1"),
        ("000080FE00000000FF005450FE12A400:0016", "fe80::5054:ff:a4:12fe"),
        ("0000000000000000FFFF00000500000A:0016", "10.0.0.5"),
    ],
)
def test_addresses_are_read_as_the_kernel_writes_them(text: str, address: str) -> None:
    assert parse_address(text) == address


@given(st.ip_addresses(v=4))
def test_an_ipv4_address_comes_back_plain_and_mapped(address: ipaddress.IPv4Address) -> None:
    assert parse_address(kernel_text(str(address))) == str(address)
    assert parse_address(kernel_text(f"::ffff:{address}")) == str(address)


@given(st.ip_addresses(v=6))
def test_an_ipv6_address_comes_back(address: ipaddress.IPv6Address) -> None:
    assert parse_address(kernel_text(str(address))) == str(address.ipv4_mapped or address)


@given(st.text(max_size=50) | st.from_regex(r"\A[0-9A-Fa-f]{0,40}:?[0-9A-F]{0,5}\n?\Z"))
def test_any_text_gives_an_address_or_one_of_our_errors(text: str) -> None:
    try:
        ipaddress.ip_address(parse_address(text))
    except UnreadableFact as error:
        assert "no address" in str(error)


def test_a_connection_over_loopback_is_found_and_a_listener_is_none() -> None:
    with socket.socket() as server, socket.socket() as client:
        server.bind(("127.0.0.1", 0))
        server.listen()
        before = connected_netifs()
        client.connect(server.getsockname())
        accepted, _ = server.accept()
        with accepted:
            assert "lo" in connected_netifs()
    assert set(before) <= set(connected_netifs()) | {"lo"}
