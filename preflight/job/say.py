"""Print messages about a job, and about preflight's own failures, on stderr, which may be non-blocking."""

from __future__ import annotations

import contextlib
import os
import select
from collections.abc import Iterator


def say(message: str) -> None:
    """Print `message` as a line on stderr; if stderr accepts none (a full disk, no reader), the line is lost."""
    with contextlib.suppress(OSError):
        write_all(2, f"preflight: {message}\n".encode("utf-8", "surrogateescape"))


def write_all(target: int, data: bytes) -> None:
    """Write all of `data` to the descriptor `target`, and wait while it is non-blocking and accepts none.

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
    """Print an exception in the block, after the text `consequence`, instead of raising it.

    An error of preflight's own thus affects neither the job nor its exit code.
    """
    try:
        yield
    except Exception as error:  # noqa: BLE001  whatever it is, it is ours
        say(f"{consequence}: {reason(error)}")


def reason(error: Exception) -> str:
    """Return why an operation failed with `error`, in the operating system's words if there are any."""
    return (error.strerror if isinstance(error, OSError) else "") or f"{type(error).__name__}: {error}"
