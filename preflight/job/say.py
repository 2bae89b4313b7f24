"""Lines on stderr around a job, also of what failed next to it; writing where others left a descriptor non-blocking."""

from __future__ import annotations

import contextlib
import os
import select
from collections.abc import Iterator


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


@contextlib.contextmanager
def contained(consequence: str) -> Iterator[None]:
    """Let what fails next to a job cost a line, and neither the job nor its exit code."""
    try:
        yield
    except Exception as error:  # noqa: BLE001  whatever it is, it is ours
        say(f"{consequence}: {reason(error)}")


def reason(error: Exception) -> str:
    """Return why something failed, in the system's words where it has some."""
    return (error.strerror if isinstance(error, OSError) else "") or f"{type(error).__name__}: {error}"
