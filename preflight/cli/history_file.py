"""`--history FILE`: what earlier runs accused is read before a run, and the run is added to it afterwards."""

from __future__ import annotations

import os

from preflight.errors import MalformedInput, OutputError, UsageError
from preflight.model.history import PastRun, history_text, parse_history
from preflight.model.input_limits import HISTORY
from preflight.system.files import write_atomically
from preflight.system.inputs import STDIN, read_input


def read_history(path: str | None) -> tuple[PastRun, ...] | None:
    """Return the runs of a file, none where it is yet to be made; None where no history is kept.

    UsageError where the file is no history, or can't be read.
    """
    if path is None:
        return None
    if path == STDIN or (os.path.exists(path) and not os.path.isfile(path)):
        raise UsageError(f"--history {path}: give a file; it is read, and written again")
    return _read(path)


def add_run(path: str, run: PastRun) -> None:
    """Write the file anew with one more run, after those that others added meanwhile; OutputError where it can't be.

    Of two runs that end within the same milliseconds the file keeps one: that can excuse a part, never accuse it.
    """
    try:
        before = _read(path)
    except (UsageError, MalformedInput) as error:
        raise OutputError(f"--history: another program has changed it meanwhile: {error}") from None
    write_atomically(path, history_text((*before, run)))


def _read(path: str) -> tuple[PastRun, ...]:
    if not os.path.exists(path):
        return ()
    return parse_history(read_input(path, HISTORY), path)
