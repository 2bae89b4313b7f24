"""What carries this rank's data: NCCL says it in its log, gloo writes none and shows it by its sockets."""

from __future__ import annotations

import glob
import os

from preflight.errors import UnreadableFact
from preflight.model.nccl_log import read_nccl_log, transport_summary
from preflight.model.units import size_text
from preflight.rank import sockets

WARNING = "NCCL WARN "
WARNINGS_KEPT, WARNING_CHARS = 3, 300


def transport(dialect: str) -> list[str]:
    """Return it sorted, empty where it can't be told: that must not fail a trial that works."""
    try:
        return _from_nccl_log(os.environ.get("NCCL_DEBUG_FILE", "")) if dialect == "nccl" else sockets.transport()
    except (OSError, UnreadableFact):
        return []


def left_behind(pattern: str, pid: int) -> tuple[list[str], list[str]]:
    """Return what carried the data of a rank that did not come to say it, and its last warnings, from its NCCL log."""
    try:
        lines = _log_lines(pattern, pid)
    except OSError:
        return [], []
    warnings = [line[line.index(WARNING) :].strip() for line in lines if WARNING in line]
    return list(transport_summary(read_nccl_log(lines))), [line[:WARNING_CHARS] for line in warnings[-WARNINGS_KEPT:]]


def _from_nccl_log(pattern: str) -> list[str]:
    log = read_nccl_log(_log_lines(pattern, os.getpid()))
    algorithms = {
        f"algorithm {each.collective or 'collective'} {size_text(each.size_bytes)} {each.algorithm}/{each.protocol}"
        for each in log.algorithms
    }
    return [*transport_summary(log), *sorted(algorithms)]


def _log_lines(pattern: str, pid: int) -> list[str]:
    """Read one process's log; NCCL puts the host's name for %h and the pid for %p."""
    mine = glob.escape(pattern).replace("%h", "*").replace("%p", str(pid))
    lines: list[str] = []
    for path in glob.glob(mine):
        with open(path, encoding="utf-8", errors="backslashreplace") as file:
            lines += file.readlines()
    return lines
