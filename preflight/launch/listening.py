"""Node 0's listeners: at all of its addresses the same port, or a word on what is in the way."""

from __future__ import annotations

import errno
import os
import socket

from preflight.errors import MeetingError
from preflight.launch.addresses import Listening


def listen(listening: Listening, ports: tuple[int, ...]) -> tuple[list[socket.socket], int]:
    """Listen on all of the addresses at the first port that is free on each; MeetingError says what is in the way."""
    problem = ""
    for port in ports:
        opened: list[socket.socket] = []
        try:
            for address in listening.addresses:
                family = socket.AF_INET6 if ":" in address else socket.AF_INET
                opened.append(socket.create_server((address, port), family=family, backlog=4096))
        except OSError as error:
            for sock in opened:
                sock.close()
            taken = error.errno == errno.EADDRINUSE
            why = "is taken by another process" if taken else f"can't be used: {os.strerror(error.errno or 0)}"
            problem = f"port {port} on {address} {why}"
            continue
        for sock in opened:
            sock.setblocking(False)
        return opened, port
    raise MeetingError(f"{problem}; choose another one: --rdzv-endpoint HOST:PORT (or MASTER_PORT)")
