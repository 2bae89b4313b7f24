"""Waiting for descriptors of any number: select() takes none above 1,023."""

from __future__ import annotations

import select
from collections.abc import Iterable


def wait_for(reading: Iterable[int], sending: Iterable[int], timeout_s: float) -> list[int]:
    """Return which descriptors are ready by then, of any number: select() takes none above 1,023."""
    poller = select.poll()
    for fd in reading:
        poller.register(fd, select.POLLIN)
    for fd in sending:
        poller.register(fd, select.POLLIN | select.POLLOUT)
    return [fd for fd, _ in poller.poll(timeout_s * 1000)]


def wait_until_writable(fd: int, timeout_s: float) -> bool:
    """Return whether the descriptor takes more by then; a reader that has gone counts, since the write says so."""
    poller = select.poll()
    poller.register(fd, select.POLLOUT)
    return bool(poller.poll(timeout_s * 1000))
