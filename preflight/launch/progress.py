"""One line that says what a run is doing, for a terminal."""

from __future__ import annotations

import select
import shutil
import sys
import time

from preflight.launch.launcher import Launched
from preflight.system.streams import to_stderr

WIPE = "\r\033[K"


class Progress:
    """The progress line on stderr, only where that is a terminal."""

    def __init__(self, deadline_s: float) -> None:
        self._deadline_s = deadline_s
        self._shown = ""

    def show(self, launched: Launched) -> None:
        """Draw the line anew where it has changed."""
        if not sys.stderr.isatty():
            return
        line = progress_line(launched, self._deadline_s, shutil.get_terminal_size().columns)
        # A terminal that was stopped (Ctrl-S) takes nothing: the run goes on without its line.
        if line != self._shown and select.select([], [sys.stderr], [], 0)[1]:
            self._shown = line
            to_stderr(f"{WIPE}{line}")

    def clear(self) -> None:
        """Wipe the line before anything else is printed."""
        if self._shown:
            to_stderr(WIPE)


def progress_line(launched: Launched, deadline_s: float, width: int) -> str:
    """Return elapsed time, step and stage, and when it ends at the latest, cut to `width` columns."""
    elapsed_s = time.monotonic() - launched.started_at
    what = launched.running or "starting one process per rank (importing torch)"
    done = f"{len(launched.trials)} tried" if launched.trials else ""
    text = "  ".join(part for part in (f"{elapsed_s:3.0f} s", done, what, f"(at most {deadline_s:.0f} s)") if part)
    return "".join(char if char.isprintable() else "?" for char in text)[: max(0, width - 1)]
