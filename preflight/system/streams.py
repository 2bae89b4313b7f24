"""Write to stdout and stderr, even if a stream is closed, has no reader, or can't encode every character."""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import sys
import time
from collections.abc import Callable

from preflight.errors import OutputError
from preflight.system.secrets import hide

WIPE = "\r\033[K"
HEARTBEAT_S = 30.0
LOG_COLUMNS = 120


def open_missing_streams() -> None:
    """Open /dev/null in place of each closed standard stream.

    Otherwise, the next file that is opened would become this standard stream.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number, which is this one
    if sys.stdout is None:
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115  it lives as long as the process
    if sys.stderr is None:
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115


def knows_unicode() -> bool:
    """Return whether stdout can encode every character."""
    return (sys.stdout.encoding or "").lower().replace("-", "").startswith("utf")


def to_stdout(text: str) -> None:
    """Write `text` to stdout and flush stdout. Ignore a closed pipe (`| head -1`).

    Raise OutputError if the write fails for another reason.
    """
    try:
        sys.stdout.write(hide(text))
        sys.stdout.flush()
    except BrokenPipeError:
        return
    except OSError as error:
        raise OutputError(f"stdout could not be written: {error.strerror}") from None


def to_stderr(text: str) -> None:
    """Write a text to stderr and flush stderr. Ignore a failure, since no other stream can report it."""
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.write(hide(text))
        sys.stderr.flush()


class Progress:
    """The progress of a long run on stderr. A terminal shows one changing line, and a log gets a line every 30 s."""

    def __init__(self, *, is_quiet: bool = False, now: Callable[[], float] = time.monotonic) -> None:
        self._is_quiet, self._now = is_quiet, now
        self._is_live = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self._shown = ""
        self._last_at = now()

    def show(self, line_of: Callable[[int], str]) -> None:
        """Show the line of progress that `line_of` returns for the terminal's width.

        If stderr is not a terminal, write a line at most every 30 s.
        """
        if self._is_quiet:
            return
        if not self._is_live:
            if self._now() - self._last_at >= HEARTBEAT_S:
                self._last_at = self._now()
                to_stderr(f"{line_of(LOG_COLUMNS)}\n")
            return
        line = line_of(shutil.get_terminal_size().columns)
        # A terminal that was stopped (Ctrl-S) takes nothing: the run goes on without its line.
        if line != self._shown and select.select([], [sys.stderr], [], 0)[1]:
            self._shown = line
            to_stderr(f"{WIPE}{line}")

    def clear(self) -> None:
        """Erase the line of progress before other text is printed."""
        if self._shown:
            to_stderr(WIPE)
