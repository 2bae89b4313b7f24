"""Wait for descriptors of any number: select() takes none above 1,023, and node 0 of a thousand nodes has more."""

from __future__ import annotations

import select
from collections.abc import Iterable


def wait_for(reading: Iterable[int], sending: Iterable[int], timeout_s: float) -> list[int]:
    """Return which descriptors are ready by then."""
    poller = select.poll()
    for fd in reading:
        poller.register(fd, select.POLLIN)
    for fd in sending:
        poller.register(fd, select.POLLIN | select.POLLOUT)
    return [fd for fd, _ in poller.poll(timeout_s * 1000)]
