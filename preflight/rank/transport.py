"""What NCCL's own log says: what carries this rank's data, and what it complained of. Gloo writes none."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator

from preflight.errors import UnreadableFact
from preflight.model.nccl_log import read_nccl_log, transport_summary
from preflight.model.trial import LogLine
from preflight.model.units import size_text
from preflight.rank import sockets

LOG_BYTES = 4 << 20  # of the end of one process's log: what went wrong stands there
WARNINGS = 12  # the first ones name the cause, the others follow from them
LAST = 4
READ_BYTES = 1 << 20
TEXT = 300


def transport(dialect: str) -> list[str]:
    """Return it sorted, empty where it can't be told: that must not fail a trial that works."""
    try:
        return _from_nccl_log(os.environ.get("NCCL_DEBUG_FILE", "")) if dialect == "nccl" else sockets.transport()
    except (OSError, UnreadableFact):
        return []


def carried(pattern: str, pid: int) -> list[str]:
    """Return what carried the data of a process that did not come to say it, from its log."""
    try:
        return list(transport_summary(read_nccl_log(_log_lines(pattern, pid))))
    except OSError:
        return []


def last_words(pattern: str, pid: int) -> tuple[str, tuple[LogLine, ...]]:
    """Return the log of an NCCL process by its path, with its first warnings and last lines; "" where it has none.

    Bounded whatever the log's size: it travels to rank 0 and into the report.
    """
    try:
        for path in sorted(_logs(pattern, pid)):
            return path, tuple(_telling(path))
    except OSError:
        pass  # what a log would have told must not keep a failed trial from being reported
    return "", ()


def _telling(path: str) -> Iterator[LogLine]:
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        skipped = 0
        for _ in range(max(0, size - LOG_BYTES) // READ_BYTES):
            skipped += file.read(READ_BYTES).count(b"\n")
        lines = [
            LogLine(skipped + number, line[:TEXT])
            for number, line in enumerate(file.read().decode("utf-8", "backslashreplace").splitlines(), 1)
            if line.strip()
        ]
    warned = [line for line in lines if " WARN " in line.text][:WARNINGS]
    yield from sorted({*warned, *lines[-LAST:]}, key=lambda line: line.line)


def _logs(pattern: str, pid: int) -> list[str]:
    """Return the logs of a process; NCCL puts the host's name for %h and the pid for %p."""
    return glob.glob(glob.escape(pattern).replace("%h", "*").replace("%p", str(pid))) if pattern else []


def _from_nccl_log(pattern: str) -> list[str]:
    log = read_nccl_log(_log_lines(pattern, os.getpid()))
    algorithms = {
        f"algorithm {each.collective or 'collective'} {size_text(each.size_bytes)} {each.algorithm}/{each.protocol}"
        for each in log.algorithms
    }
    return [*transport_summary(log), *sorted(algorithms)]


def _log_lines(pattern: str, pid: int) -> list[str]:
    lines: list[str] = []
    for path in _logs(pattern, pid):
        with open(path, encoding="utf-8", errors="backslashreplace") as file:
            lines += file.readlines()
    return lines
