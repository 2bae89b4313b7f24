"""Read the transport of this rank's data, and the warnings, from NCCL's own log. Gloo writes no such log."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterator

from preflight.errors import UnreadableFact
from preflight.model.error_texts import any_of
from preflight.model.nccl_log import read_nccl_log
from preflight.model.transport import Carrier, CarrierKind
from preflight.model.trial import LogLine
from preflight.system.shm_segments import unusable_segments
from preflight.trial.rank import sockets

# A transfer that was not acknowledged; or an address that did not answer ten times in 5 s, of which NCCL asks 35 times.
GAVE_UP = re.compile(rf"{any_of('ib.completion').pattern}|ibv_modify_qp failed[^\n]{{1,400}} retrying [1-9]\d/", re.I)
LOG_BYTES = 4 << 20  # read from the end of one process's log, which has the errors
WARNINGS = 12  # the first ones name the cause, the others follow from them
LAST = 4
READ_BYTES = 1 << 20
TEXT = 300


def transport(dialect: str) -> tuple[Carrier, ...]:
    """Return the transports (such as P2P, SHM or NET/IB) of this rank's data, or () if NCCL's log can't be read."""
    # The transports come from NCCL's log if `dialect` is "nccl", otherwise from this process's sockets.
    try:
        if dialect != "nccl":
            return tuple(Carrier(CarrierKind.TCP, netif) for netif in sockets.connected_netifs())
        log = read_nccl_log(_log_lines(os.environ.get("NCCL_DEBUG_FILE", ""), os.getpid()))
    except (OSError, UnreadableFact):
        return ()
    return (*log.carriers(), *log.algorithm_carriers())


def carried(pattern: str, pid: int) -> tuple[Carrier, ...]:
    """Return the transports of the data of the ended process `pid`.

    The result is () if the process's NCCL log can't be read. `pattern` is the NCCL_DEBUG_FILE of the process.
    """
    try:
        return read_nccl_log(_log_lines(pattern, pid)).carriers()
    except OSError:
        return ()


def left_in_shm(pattern: str, pid: int) -> frozenset[str]:
    """Return the files in /dev/shm that the ended process `pid` created but could not use.

    The files come from the process's NCCL log. `pattern` is the NCCL_DEBUG_FILE of the process.
    """
    try:
        return unusable_segments(_log_lines(pattern, pid))
    except OSError:
        return frozenset()


def last_words(pattern: str, pid: int) -> tuple[str, tuple[LogLine, ...]]:
    """Return the path, the first warnings and the last lines of the NCCL log of process `pid`.

    The path is returned first, and the lines follow in a tuple. The result is ("", ()) if there is no log.
    """
    # `pattern` is the NCCL_DEBUG_FILE of this process.
    try:
        for path in sorted(_logs(pattern, pid)):
            return path, tuple(_telling(path))
    except OSError:
        pass  # an unreadable log must not prevent the report of a failed trial
    return "", ()


def gives_up(pattern: str, pid: int, read: dict[str, int]) -> bool:
    """Return whether new lines in the log of process `pid` say that NCCL has given up an InfiniBand transfer.

    The function updates `read`, the number of bytes read so far from each log.
    """
    # `pattern` is the NCCL_DEBUG_FILE of this process. An incomplete line is read at the next call.
    found = False
    try:
        for path in _logs(pattern, pid):
            with open(path, "rb") as file:
                file.seek(read.get(path, 0))
                lines, _, _ = file.read(READ_BYTES).rpartition(b"\n")
            read[path] = read.get(path, 0) + len(lines)
            found |= GAVE_UP.search(lines.decode("utf-8", "backslashreplace")) is not None
    except OSError:
        pass  # the stage's limit ends the trial all the same
    return found


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
    """Return the paths of the NCCL logs of process `pid`.

    In `pattern`, NCCL replaces %h by the host's name and %p by the pid.
    """
    return glob.glob(glob.escape(pattern).replace("%h", "*").replace("%p", str(pid))) if pattern else []


def _log_lines(pattern: str, pid: int) -> list[str]:
    lines: list[str] = []
    for path in _logs(pattern, pid):
        with open(path, encoding="utf-8", errors="backslashreplace") as file:
            lines += file.readlines()
    return lines
