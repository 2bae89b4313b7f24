"""Wait for descriptors with poll(), because select() accepts no descriptor above 1,023."""

from __future__ import annotations

import select
from collections.abc import Iterable


def wait_for(reading: Iterable[int], sending: Iterable[int], timeout_s: float) -> list[int]:
    """Return the descriptors that are ready within `timeout_s` seconds, or [] if no descriptor is ready.

    `reading` descriptors are ready if they can be read, and `sending` descriptors if they can be read or written.
    """
    poller = select.poll()
    for fd in reading:
        poller.register(fd, select.POLLIN)
    for fd in sending:
        poller.register(fd, select.POLLIN | select.POLLOUT)
    return [fd for fd, _ in poller.poll(timeout_s * 1000)]


def wait_until_writable(fd: int, timeout_s: float) -> bool:
    """Return whether the descriptor `fd` becomes writable within `timeout_s` seconds.

    If the reader is closed, the result is True, and the next write raises the error.
    """
    poller = select.poll()
    poller.register(fd, select.POLLOUT)
    return bool(poller.poll(timeout_s * 1000))
