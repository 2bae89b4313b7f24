"""The protocol between the path probes of two nodes: fixed sizes, limits and deadlines.

Callers that break the protocol are dropped.
"""
# Both nodes first send a token of the run and the node's number. The caller then sends a byte (echo or swallow), a
# length, and this many bytes, at most MOST_BYTES. The peer answers "echo" with the same bytes, and "swallow" with a
# single byte once all bytes have arrived.

from __future__ import annotations

import contextlib
import errno
import os
import socket
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

from preflight.model.network_survey import PathEnd

CONNECT_S = 1.5
HELLO_S = 1.5  # for a caller to say who it is
PAYLOAD_S = 2.0
IDLE_S = 8.0  # a known caller that goes silent; it measures its other paths first
PAYLOAD_BYTES = 256 << 10  # more than any MTU, and more than the largest segment that an interface is handed
SMALL_BYTES = 64
TRIPS = 5
MOST_BYTES = 1 << 20
SWALLOW_BYTES = 1 << 20
RATE_S = 0.02  # the moment in which throughput is measured
TOKEN_BYTES = 16

HELLO = struct.Struct(f"!{TOKEN_BYTES}sI")
COMMAND = struct.Struct("!cI")
ECHO, SWALLOW = b"E", b"S"
REASONS = {
    errno.ECONNREFUSED: PathEnd.REFUSED,
    errno.EHOSTUNREACH: PathEnd.NO_ROUTE,
    errno.ENETUNREACH: PathEnd.NO_ROUTE,
    errno.ETIMEDOUT: PathEnd.DROPPED,
}


@dataclass(frozen=True, slots=True)
class Met:
    """The result of a connection attempt. `sock` is the connection to the verified peer, or None."""

    sock: socket.socket | None
    end: PathEnd
    detail: str = ""


def serve(sock: socket.socket, token: bytes, node_rank: int) -> None:
    """Answer the caller at `sock` until the caller closes the connection, is silent, or sends a wrong token."""
    with contextlib.suppress(OSError, ValueError), sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        theirs, _ = HELLO.unpack(_read(sock, HELLO.size, time.monotonic() + HELLO_S))
        if theirs != token:
            return
        sock.sendall(HELLO.pack(token, node_rank))
        buffer = bytearray(MOST_BYTES)
        while True:
            what, size_bytes = COMMAND.unpack(_read(sock, COMMAND.size, time.monotonic() + IDLE_S))
            if size_bytes > MOST_BYTES or what not in (ECHO, SWALLOW):
                return
            view = memoryview(buffer)[:size_bytes]
            _read_into(sock, view, time.monotonic() + PAYLOAD_S)
            sock.settimeout(PAYLOAD_S)
            sock.sendall(view if what == ECHO else b".")


def meet(source: str, address: str, port: int, token: bytes, own_rank: int, their_rank: int) -> Met:
    """Connect from the address `source` to another node, and verify that the other node has the rank `their_rank`.

    The result has a socket only if the verification succeeds.
    """
    # `token` identifies the run.
    sock = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
    try:
        sock.settimeout(CONNECT_S)
        sock.bind((source, 0))
        sock.connect((address, port))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.sendall(HELLO.pack(token, own_rank))
        theirs, number = HELLO.unpack(_read(sock, HELLO.size, time.monotonic() + HELLO_S))
    except TimeoutError:
        sock.close()
        return Met(None, PathEnd.DROPPED, "no answer")
    except (OSError, ValueError) as error:
        sock.close()
        code = getattr(error, "errno", None) or 0
        return Met(None, REASONS.get(code, PathEnd.FAILED), os.strerror(code) if code else str(error))
    if theirs == token and number == their_rank:
        return Met(sock, PathEnd.OK)
    sock.close()
    if theirs != token:
        return Met(None, PathEnd.STRANGER, "another program answers")
    return Met(None, PathEnd.ITSELF if number == own_rank else PathEnd.FAILED, f"node {number} answers")


def carry_large(sock: socket.socket) -> tuple[PathEnd, str, float]:
    """Send small and then large messages that the peer echoes, and return (result, detail, bytes per second).

    The rate of a failed path is 0.
    """
    # The path passes if any part of a large message comes back.
    try:
        round_trip_s(sock)
    except OSError as error:
        return PathEnd.DROPPED, f"connected, but then: {error}", 0.0
    since = time.monotonic()
    received: list[int] = []
    with contextlib.suppress(OSError):
        _echo(sock, PAYLOAD_BYTES, received.append)
    if not received:
        return PathEnd.SMALL_ONLY, f"{SMALL_BYTES} bytes come back, {PAYLOAD_BYTES >> 10} KiB do not", 0.0
    took_s = time.monotonic() - since
    return PathEnd.OK, "", (PAYLOAD_BYTES + received[-1]) / took_s


def round_trip_s(sock: socket.socket) -> float:
    """Return the median round-trip time of a small message over `sock`, in seconds."""
    times = []
    for _ in range(TRIPS):
        since = time.monotonic()
        _echo(sock, SMALL_BYTES, lambda _: None)
        times.append(time.monotonic() - since)
    return median(times)


def rate_bytes_s(sock: socket.socket) -> float:
    """Return the one-way rate over `sock` in bytes per second, measured for a short time."""
    data, done, since = bytes(SWALLOW_BYTES), 0, time.monotonic()
    while (took_s := time.monotonic() - since) < RATE_S or not done:
        sock.settimeout(PAYLOAD_S)
        sock.sendall(COMMAND.pack(SWALLOW, SWALLOW_BYTES))
        sock.sendall(data)
        _read(sock, 1, time.monotonic() + PAYLOAD_S)
        done += SWALLOW_BYTES
    return done / took_s


def _echo(sock: socket.socket, size_bytes: int, note: Callable[[int], None]) -> None:
    """Send `size_bytes` bytes to the peer, and read them back within PAYLOAD_S seconds.

    The function `note` is called with the count of bytes that were read so far.
    """
    until = time.monotonic() + PAYLOAD_S
    sock.settimeout(PAYLOAD_S)
    sock.sendall(COMMAND.pack(ECHO, size_bytes))
    sock.sendall(bytes(size_bytes))  # the other end reads all of it before it answers
    _read_into(sock, memoryview(bytearray(size_bytes)), until, note)


def _read(sock: socket.socket, size_bytes: int, until: float) -> bytes:
    data = bytearray(size_bytes)
    _read_into(sock, memoryview(data), until)
    return bytes(data)


def _read_into(
    sock: socket.socket, view: memoryview, until: float, note: Callable[[int], None] = lambda _: None
) -> None:
    got = 0
    while got < len(view):
        sock.settimeout(max(0.001, until - time.monotonic()))
        count = sock.recv_into(view[got:])
        if not count:
            raise ConnectionResetError(errno.ECONNRESET, "the other end closed")
        got += count
        note(got)
