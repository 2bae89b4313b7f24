"""One line on stderr that says how far a measurement is, only where that is a terminal."""

from __future__ import annotations

import shutil
import sys

from preflight.render.text import clean
from preflight.system.streams import to_stderr

WIPE = "\r\033[K"


class ShareShown:
    """Draws the share that is done, a percent at a time."""

    def __init__(self, what: str) -> None:
        self._what = clean(what)
        self._shown = ""

    def show(self, share: float) -> None:
        """Draw the line anew where it has changed."""
        if not sys.stderr.isatty():
            return
        text = f"{self._what}: {100 * min(1.0, max(0.0, share)):.0f} %"[
            : max(0, shutil.get_terminal_size().columns - 1)
        ]
        if text != self._shown:
            self._shown = text
            to_stderr(f"{WIPE}{text}")

    def clear(self) -> None:
        """Wipe the line before anything else is printed."""
        if self._shown:
            to_stderr(WIPE)
