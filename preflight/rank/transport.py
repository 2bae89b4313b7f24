"""What carries this rank's data: NCCL says it in its log, gloo writes none and shows it by its sockets."""

from __future__ import annotations

import glob
import os

from preflight.errors import UnreadableFact
from preflight.model.nccl_log import read_nccl_log, transport_summary
from preflight.rank import sockets


def transport(dialect: str) -> list[str]:
    """Return it sorted, empty where it can't be told: that must not fail a trial that works."""
    try:
        return _from_nccl_log(os.environ.get("NCCL_DEBUG_FILE", "")) if dialect == "nccl" else sockets.transport()
    except (OSError, UnreadableFact):
        return []


def _from_nccl_log(pattern: str) -> list[str]:
    """Read this process's own log; NCCL puts the host's name for %h and the pid for %p."""
    mine = glob.escape(pattern).replace("%h", "*").replace("%p", str(os.getpid()))
    lines: list[str] = []
    for path in glob.glob(mine):
        with open(path, encoding="utf-8", errors="backslashreplace") as file:
            lines += file.readlines()
    return list(transport_summary(read_nccl_log(lines)))
