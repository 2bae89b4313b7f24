"""Find the network interfaces that this process's TCP connections use, because gloo writes no log."""

from __future__ import annotations

import ipaddress
import os
import re
import socket
import struct
from collections.abc import Iterable
from typing import Any

import netifaces

from preflight.errors import UnreadableFact

ESTABLISHED = "01"
ADDRESS = re.compile(r"([0-9A-F]{8}|[0-9A-F]{32}):[0-9A-F]{4}", re.ASCII)


def connected_netifs() -> list[str]:
    """Return the sorted names of the interfaces on which this process has established TCP connections."""
    owners = _interface_of_address()
    connected = _connected_addresses(_own_socket_inodes())
    return sorted({owners.get(address, address) for address in connected})


def _own_socket_inodes() -> frozenset[str]:
    inodes = set()
    for fd in os.listdir("/proc/self/fd"):
        try:
            match = re.fullmatch(r"socket:\[(\d+)\]", os.readlink(f"/proc/self/fd/{fd}"))
        except OSError:  # the descriptor of the listing itself is gone by now
            continue
        if match:
            inodes.add(match[1])
    return frozenset(inodes)


def _connected_addresses(inodes: frozenset[str]) -> Iterable[str]:
    for table in ("/proc/self/net/tcp", "/proc/self/net/tcp6"):
        try:
            with open(table, encoding="ascii") as file:
                lines = file.read().splitlines()[1:]
        except OSError:  # no IPv6 in this kernel
            continue
        for fields in map(str.split, lines):
            if fields[3] == ESTABLISHED and fields[9] in inodes:
                yield parse_address(fields[1])


def parse_address(text: str) -> str:
    """Return the IP address in `text`, such as `0100007F:1F90` in /proc/net/tcp.

    An IPv4-mapped address becomes IPv4.
    """
    match = ADDRESS.fullmatch(text)
    if match is None:
        raise UnreadableFact(f"{text[:80]!r} is no address as /proc/net/tcp writes them")
    words = [int(match[1][i : i + 8], 16) for i in range(0, len(match[1]), 8)]
    packed = struct.pack(f"={len(words)}I", *words)
    if len(packed) == 4:
        return socket.inet_ntop(socket.AF_INET, packed)
    address = ipaddress.IPv6Address(packed)
    return str(address.ipv4_mapped or address)


def _interface_of_address() -> dict[str, str]:
    owners: dict[str, str] = {}
    for _, name in socket.if_nameindex():
        by_family: Any = netifaces.ifaddresses(name)  # keyed by an enum that equals these numbers
        for entry in (*by_family.get(socket.AF_INET, ()), *by_family.get(socket.AF_INET6, ())):
            owners.setdefault(entry["addr"].partition("%")[0], name)
    return owners
