"""Who calls node 0 and has not said who it is: given a moment and little room, then dropped."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator, Sequence

from preflight.errors import MalformedInput, MeetingError
from preflight.model.codec import decode
from preflight.model.joint import Hello
from preflight.trial.nodes.peers import HELLO_S
from preflight.trial.nodes.wire import Link, Poller

MOST_STRANGERS = 256  # beyond, and beyond the number of nodes, the oldest makes room
ACCEPTS_A_TURN = 256


class Handshakes:
    """Links on which nothing was heard yet; `ready` is told of each, so that a word of it wakes node 0."""

    def __init__(self, ready: Poller, nodes: int) -> None:
        self._ready = ready
        self._most = max(MOST_STRANGERS, nodes)
        self._links: list[Link] = []

    def accept(self, listeners: Sequence[socket.socket]) -> None:
        """Take in who calls."""
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

    def introduced(self) -> Iterator[tuple[Link, Hello]]:
        """Yield who says who it is; whoever sends anything else, or nothing for 5 s, is dropped."""
        for link in list(self._links):
            try:
                link.send()
                messages = link.receive()
                hello = decode(Hello, messages[0].get("hello")) if messages else None
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
        """Drop all."""
        for link in self._links:
            link.close()
        self._links = []
