"""Network interfaces in the kernel's order, with addresses and default gateways from netifaces."""

from __future__ import annotations

import errno
import fcntl
import ipaddress
import os
import socket
import struct
from collections.abc import Callable, Iterable
from typing import Any

from preflight.system.machine import Json

SIOCGIFFLAGS = 0x8913  # linux/sockios.h
IFREQ = struct.Struct("16sH22x")  # struct ifreq: the name, the flags, the rest of its union

INTERFACES = "/sys/class/net"

GONE = None  # an interface that was removed after it was listed
LIBRARY_ERRORS = (OSError, RuntimeError, ValueError, LookupError)


def network_interfaces() -> Json:
    """Return `{name, index, flags, addresses, networks, gateways}` of every interface, in index order.

    A value that can't be read is `{"unreadable": reason}`.
    """
    # Imported here because it loads a compiled module, which not every command needs.
    import netifaces  # noqa: PLC0415  a compiled module that only a live probe needs

    gateways = _gateways(netifaces)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        listed = [(index, name, _flags(probe, name)) for index, name in sorted(socket.if_nameindex())]
    return [_interface(netifaces, *entry, gateways) for entry in listed if entry[2] is not GONE]


def ask_rdma_interfaces(ask: Callable[[str], Json], names: Iterable[str] | None = None) -> Json:
    """Call `ask` for each network interface of an RDMA adapter, and return {name: result}.

    If `names` is given, the interfaces in `names` are used instead.
    """
    if names is None:
        listed = (name for _, name in socket.if_nameindex())
        names = (name for name in listed if os.path.exists(f"{INTERFACES}/{name}/device/infiniband"))
    return {os.fsencode(name).decode("utf-8", "backslashreplace"): ask(name) for name in names}


def _interface(library: Any, index: int, name: str, flags: Json, gateways: Json) -> Json:
    plain = os.fsencode(name).decode("utf-8", "backslashreplace")
    return {
        "name": plain,
        "index": index,
        "flags": flags,
        "addresses": _addresses(library, name) if plain == name else _unreadable("its name is not UTF-8"),
        "networks": _networks(library, name) if plain == name else [],
        "gateways": gateways if "unreadable" in gateways else gateways.get(plain, []),
    }


def _flags(probe: socket.socket, name: str) -> Json:
    try:
        answer = fcntl.ioctl(probe, SIOCGIFFLAGS, IFREQ.pack(os.fsencode(name), 0))
    except OSError as error:
        if error.errno == errno.ENODEV:
            return GONE
        return _unreadable(f"its flags: {error.strerror}")
    return IFREQ.unpack(answer)[1]


def _addresses(library: Any, name: str) -> Json:
    try:
        found = library.ifaddresses(name)
    except LIBRARY_ERRORS as error:
        return _unreadable(f"netifaces: {error}")
    return [entry["addr"].partition("%")[0] for entry in _entries(found)]


def _networks(library: Any, name: str) -> list[str]:
    """Return the IPv4 networks of the interface `name`, such as `10.1.0.0/16`.

    Networks for which netifaces gives no address or no netmask are left out.
    """
    try:
        entries = library.ifaddresses(name).get(int(socket.AF_INET), ())
    except LIBRARY_ERRORS:
        return []
    found = []
    for entry in entries:
        mask = entry.get("mask") or entry.get("netmask")
        if mask and entry.get("addr"):
            found.append(str(ipaddress.IPv4Network((entry["addr"], mask), strict=False)))
    return list(dict.fromkeys(found))


def _entries(families: Any) -> list[Any]:
    """Return the addresses that netifaces gives for an interface, IPv4 first."""
    found = [*families.get(int(socket.AF_INET), ()), *families.get(int(socket.AF_INET6), ())]
    return [entry for entry in found if entry.get("addr")]


def _gateways(library: Any) -> Json:
    try:
        found = library.gateways()
    except LIBRARY_ERRORS as error:
        return _unreadable(f"netifaces: {error}")
    defaults: dict[str, list[str]] = {}
    for _, routes in sorted(found.items(), key=lambda item: int(item[0].value)):
        for address, name, *is_default in routes:
            if is_default and is_default[0] and address not in defaults.get(name, []):
                defaults.setdefault(name, []).append(address)
    return defaults


def _unreadable(reason: str) -> Json:
    return {"unreadable": reason}


def prefix_bits() -> dict[str, int]:
    """Return the prefix length of this host's addresses, as {address: bits}."""
    import netifaces  # noqa: PLC0415  a compiled module that only a live probe needs

    found: dict[str, int] = {}
    for _, name in socket.if_nameindex():
        try:
            families: Any = netifaces.ifaddresses(name)
        except LIBRARY_ERRORS:
            continue
        for entry in _entries(families):
            bits = parse_mask(str(entry.get("mask") or entry.get("netmask") or ""))
            if bits is not None:
                found[entry["addr"].partition("%")[0]] = bits
    return found


def parse_mask(mask: str) -> int | None:
    """Return the number of bits in a netmask, such as 24 for `255.255.255.0`, or None for other text."""
    _, slash, bits = mask.partition("/")
    if slash:
        return int(bits) if bits.isascii() and bits.isdigit() and int(bits) <= 128 else None
    try:
        packed = socket.inet_pton(socket.AF_INET6 if ":" in mask else socket.AF_INET, mask)
    except (OSError, ValueError):
        return None
    ones = "".join(f"{byte:08b}" for byte in packed)
    return ones.count("1") if "01" not in ones else None
