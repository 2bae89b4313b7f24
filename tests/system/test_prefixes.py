"""The length of an address's prefix, as netifaces tells netmasks."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preflight.system.interfaces import parse_mask, prefix_bits


@given(st.integers(0, 32))
def test_every_netmask_has_its_length(bits: int) -> None:
    assert parse_mask(str(ipaddress.ip_network(f"0.0.0.0/{bits}").netmask)) == bits


@given(st.integers(0, 128))
def test_so_has_every_one_of_ipv6_in_either_spelling(bits: int) -> None:
    mask = str(ipaddress.ip_network(f"::/{bits}").netmask)
    assert parse_mask(mask) == parse_mask(f"{mask}/{bits}") == bits


@given(st.text())
def test_any_text_has_a_length_or_none(text: str) -> None:
    bits = parse_mask(text)
    assert bits is None or 0 <= bits <= 128


@pytest.mark.parametrize("text", ["", "255.0.255.0", "x/y", "::/129"])
def test_what_is_no_netmask_has_none(text: str) -> None:
    assert parse_mask(text) is None


def test_loopback_is_known_here() -> None:
    assert prefix_bits()["127.0.0.1"] == 8
