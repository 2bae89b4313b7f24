"""Free ports for the servers of tests, below those that the kernel gives to connections (32768 and above).

A port that the kernel has given once may be a connection's before the server listens on it.
"""

from __future__ import annotations

import contextlib
import random
import socket

PORTS = range(20000, 29000)
_GIVEN: set[int] = set()


def free_port() -> int:
    """Return a port that nobody uses now and that was not given before; another process draws others."""
    for port in random.SystemRandom().sample(PORTS, len(PORTS)):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("", port))
            if port not in _GIVEN:
                _GIVEN.add(port)
                return port
    raise RuntimeError(f"no free port in {PORTS}")
