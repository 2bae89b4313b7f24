"""Callers of node 0 that have not identified themselves. Such a caller gets little time and memory."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Generic, TypeVar

from preflight.errors import MalformedInput, MeetingError
from preflight.trial.nodes.peers import HELLO_S
from preflight.trial.nodes.wire import Link, Message, Poller

Said = TypeVar("Said")

MOST_STRANGERS = 256  # beyond, and beyond the number of nodes, the oldest makes room
ACCEPTS_A_TURN = 256


class Handshakes(Generic[Said]):
    """The connections that have not yet sent a valid message.

    The function `read` returns the caller's identity from the first message. It raises MalformedInput if the message
    has no identity.
    """

    # Each connection is added to the poller `ready`.

    def __init__(self, ready: Poller, nodes: int, read: Callable[[Message], Said]) -> None:
        self._ready = ready
        self._read = read
        self._most = max(MOST_STRANGERS, nodes)
        self._links: list[Link] = []

    def accept(self, listeners: Sequence[socket.socket]) -> None:
        """Accept the callers that wait at `listeners`. If there are too many callers, drop the oldest callers."""
        for listener in listeners:
            for _ in range(ACCEPTS_A_TURN):
                try:
                    sock, _ = listener.accept()
                except OSError:  # none left, or the caller is gone again, or no descriptor is free
                    break
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._links.append(Link(sock))
                self._ready.watch(self._links[-1])
        while len(self._links) > self._most:
            self._links.pop(0).close()

    def introduced(self) -> Iterator[tuple[Link, Said]]:
        """Yield (connection, identity) for each caller that has identified itself.

        A caller is dropped if its first message is something else, or if it sends nothing for 5 s.
        """
        for link in list(self._links):
            try:
                link.send()
                messages = link.receive()
                hello = self._read(messages[0]) if messages else None
                is_late = time.monotonic() - link.since > HELLO_S
            except (MeetingError, MalformedInput):
                hello, is_late = None, True
            if hello or is_late:
                self._links.remove(link)
            if hello:
                yield link, hello
            elif is_late:
                link.close()

    def close(self) -> None:
        """Close the connections of all callers that have not identified themselves."""
        for link in self._links:
            link.close()
        self._links = []
