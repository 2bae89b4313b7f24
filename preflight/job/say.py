"""Print messages about a job and about failures of preflight on stderr. stderr may be non-blocking."""

from __future__ import annotations

import contextlib
import os
import select
from collections.abc import Iterator


def say(message: str) -> None:
    """Print `message` as a line on stderr. If stderr fails (a full disk, no reader), the line is lost."""
    with contextlib.suppress(OSError):
        write_all(2, f"preflight: {message}\n".encode("utf-8", "surrogateescape"))


def write_all(target: int, data: bytes) -> None:
    """Write all of `data` to the descriptor `target`. If the descriptor is non-blocking, wait until it accepts data.

    Raise OSError if the write fails.
    """
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
    """Print an exception that the block raises, and continue after the block.

    The message begins with `consequence`. An error of preflight then affects neither the job nor the job's exit code.
    """
    try:
        yield
    except Exception as error:  # noqa: BLE001  whatever it is, it is ours
        say(f"{consequence}: {reason(error)}")


def reason(error: Exception) -> str:
    """Return why an operation failed with `error`. For an OSError, use the text of the operating system."""
    return (error.strerror if isinstance(error, OSError) else "") or f"{type(error).__name__}: {error}"
