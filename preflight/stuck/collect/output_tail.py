"""The last lines that a rank wrote, where its standard output or error is a file."""

from __future__ import annotations

import os
import stat
import time

from preflight.errors import UnreadableFact
from preflight.model.gap import Gap
from preflight.model.stuck_evidence import OutputTail
from preflight.system.machine import Machine

TAIL_BYTES = 4096
MOST_LINES, LINE_CHARS = 3, 300


def read_output_tail(machine: Machine, pid: int) -> OutputTail | Gap:
    """Return the end of the file to which a process writes; a Gap where it writes into a terminal or a pipe."""
    try:
        targets = [machine.link(f"proc/{pid}/fd/{fd}") for fd in (1, 2)]
    except UnreadableFact as error:
        return Gap(str(error))
    for path in targets:
        try:
            if path.startswith("/") and not path.startswith("/dev/") and stat.S_ISREG(os.stat(path).st_mode):
                return _tail(path)
        except OSError as error:
            return Gap(f"{path}: {error.strerror}")
    return Gap("its output goes to no file")


def _tail(path: str) -> OutputTail:
    with open(path, "rb") as file:
        status = os.fstat(file.fileno())
        file.seek(max(0, status.st_size - TAIL_BYTES))
        lines = file.read(TAIL_BYTES).decode("utf-8", "backslashreplace").splitlines()
    kept = tuple(line[:LINE_CHARS] for line in lines if line.strip())[-MOST_LINES:]
    return OutputTail(path, kept, max(0.0, time.time() - status.st_mtime))
