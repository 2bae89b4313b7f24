"""Lines on stderr around a job, and writing where others left a descriptor non-blocking."""

from __future__ import annotations

import contextlib
import os
import select


def say(message: str) -> None:
    """Write a line; where stderr takes none (a full disk, no reader) there is nowhere left to complain."""
    with contextlib.suppress(OSError):
        write_all(2, f"preflight: {message}\n".encode("utf-8", "surrogateescape"))


def write_all(target: int, data: bytes) -> None:
    """Write all of it, and wait while a non-blocking descriptor takes nothing; OSError where it can't be written."""
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[os.write(target, rest) :]
        except BlockingIOError:
            writable = select.poll()
            writable.register(target, select.POLLOUT)
            writable.poll()
