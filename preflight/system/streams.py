"""stdout and stderr as they come: closed, without a reader, on a full disk, or in an encoding that knows little."""

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
    """Put /dev/null where a standard stream is closed: the next file opened would take its number."""
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
    """Return whether stdout can carry any character."""
    return (sys.stdout.encoding or "").lower().replace("-", "").startswith("utf")


def to_stdout(text: str) -> None:
    """Write and flush; a reader that went away (`| head -1`) has what it wanted. OutputError where that fails."""
    try:
        sys.stdout.write(hide(text))
        sys.stdout.flush()
    except BrokenPipeError:
        return
    except OSError as error:
        raise OutputError(f"stdout could not be written: {error.strerror}") from None


def to_stderr(text: str) -> None:
    """Write and flush as far as that is possible: there is nowhere left to complain."""
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.write(hide(text))
        sys.stderr.flush()


class Progress:
    """How far a long run is, on stderr: one line redrawn on a terminal, a line every 30 s elsewhere."""

    def __init__(self, *, is_quiet: bool = False, now: Callable[[], float] = time.monotonic) -> None:
        self._is_quiet, self._now = is_quiet, now
        self._is_live = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self._shown = ""
        self._last_at = now()

    def show(self, line_of: Callable[[int], str]) -> None:
        """Show the line that is made for the terminal's columns; in a log only when the last one is 30 s old."""
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
        """Wipe the line before anything else is printed."""
        if self._shown:
            to_stderr(WIPE)
