"""The rendezvous endpoint of the nodes: its addresses, and the addresses on which node 0 listens."""

from __future__ import annotations

import errno
import functools
import ipaddress
import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass

from preflight.errors import MeetingError
from preflight.model.facts import Gap, Netif, NetifKind
from preflight.system.isolate import run_isolated
from preflight.trial.nodes.wire import plain_address

# Reached from other nodes only by accident: each host has the same one.
LOCAL_KINDS = frozenset({NetifKind.LOOPBACK, NetifKind.CONTAINER})


@dataclass(frozen=True, slots=True)
class Resolved:
    """The addresses to which a host name resolves on this node. `problem` is the reason if there is no address."""

    addresses: tuple[str, ...]
    problem: str


@dataclass(frozen=True, slots=True)
class Listening:
    """The addresses on which node 0 listens, and the reason for this choice."""

    addresses: tuple[str, ...]
    why: str


def resolve(host: str, limit_s: float) -> Resolved:
    """Return the addresses of `host`, looked up in a separate process within `limit_s` seconds.

    The process is separate because a dead name server blocks for many seconds.
    """
    if is_address(host):
        return Resolved((host,), "")
    answer = run_isolated({host: functools.partial(_look_up, host)}, {host: limit_s})[host]
    if answer.failure:
        stuck = answer.failure.startswith("no answer")
        why = "the name server does not answer" if stuck else answer.failure.partition(": ")[2]
        return Resolved((), f"the name {host} does not resolve on this node: {why or answer.failure}")
    return Resolved(tuple(answer.value), "")


def _look_up(host: str) -> list[str]:
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except UnicodeError as error:  # a name that IDNA can't encode
        raise OSError(0, str(error)) from None
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


def listening_addresses(host: str, resolved: Sequence[str], netifs: Sequence[Netif]) -> Listening:
    """Return the addresses on which node 0 listens.

    The name `host` resolves to the addresses `resolved`, from which the result is chosen. If no address fits, the
    result has all addresses that other nodes could reach.
    """
    # If the name resolves to loopback or to another host's address, node 0 listens on all its addresses that the other
    # nodes could reach.
    own = {address: netif for netif in netifs for address in _addresses(netif)}
    found = [address for address in map(plain_address, resolved) if address in own and not is_loopback(address)]
    meant = [address for address in found if own[address].kind not in LOCAL_KINDS]
    if meant:
        return Listening(tuple(meant), f"{host} resolves to it")
    asked_for_loopback = host == "localhost" or (is_address(host) and is_loopback(host))
    if asked_for_loopback:
        return Listening(tuple(resolved[:1]), f"{host} was asked for: only this host's own processes can come")
    usable = [address for address, netif in own.items() if _is_usable(address, netif)]
    looped = [address for address in resolved if is_loopback(address)]
    resolves = f"resolves to {', '.join(resolved)} here" if resolved else "does not resolve here"
    if usable:
        which = "a loopback address" if looped == list(resolved) != [] else "no address of this node"
        which = "the address of a container network, which each host has for itself" if found else which
        why = f"{host} {resolves}{f', {which}' if resolved else ''}: every address that others could reach is used"
        return Listening((*usable, *looped), why)
    return Listening(("",), f"{host} {resolves} and no address of this node is known: all interfaces are used")


def listen(listening: Listening, ports: tuple[int, ...]) -> tuple[list[socket.socket], int]:
    """Return sockets that listen on all addresses of `listening`, and their common port.

    Raise MeetingError if no port of `ports` is free on all addresses.
    """
    # The port is the first port of `ports` that is free on all addresses.
    problem = ""
    for port in ports:
        opened: list[socket.socket] = []
        try:
            for address in listening.addresses:
                family = socket.AF_INET6 if ":" in address else socket.AF_INET
                opened.append(socket.create_server((address, port), family=family, backlog=4096))
                opened[-1].setblocking(False)
        except OSError as error:
            for sock in opened:
                sock.close()
            taken = error.errno == errno.EADDRINUSE
            why = "is taken by another process" if taken else f"can't be used: {os.strerror(error.errno or 0)}"
            problem = f"port {port} on {address} {why}"
        else:
            return opened, port
    raise MeetingError(f"{problem}; choose another one: --rdzv-endpoint HOST:PORT (or MASTER_PORT)")


def netif_of(address: str, netifs: Sequence[Netif]) -> str:
    """Return the name of the interface with this address, or "" for a loopback or unknown address."""
    found = (netif for netif in netifs if plain_address(address) in _addresses(netif))
    return next((netif.name for netif in found if netif.kind is not NetifKind.LOOPBACK), "")


def _addresses(netif: Netif) -> tuple[str, ...]:
    return () if isinstance(netif.addresses, Gap) else netif.addresses


def _is_usable(address: str, netif: Netif) -> bool:
    link_local = address.startswith(("169.254.", "fe80:"))
    return netif.is_up and netif.kind not in LOCAL_KINDS and not is_loopback(address) and not link_local


def is_address(host: str) -> bool:
    """Return whether `host` is an IP address, not a name."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def is_loopback(address: str) -> bool:
    """Return whether an address reaches only this host."""
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False
