"""Find processes of a job that still run after the job's end. They may hold ports, files and GPU memory."""

from __future__ import annotations

import contextlib
import os
import sys
import time

from preflight.system.processes import GONE, ProcessStat, all_processes, below

FIRST_S, LAST_S = 1.0, 60.0  # between two looks at what the job has started: at first often, later seldom
LEAVES_S = 0.5  # for what is just ending
MOST_NAMED, CHARS = 4, 60


class Family:
    """The processes of one job: the job's descendants, and the orphans in preflight's process group.

    Only orphans that started after preflight count.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._seen: dict[int, int] = {}  # numbers, and when they began
        self._next, self._pause_s = 0.0, FIRST_S

    def look(self) -> None:
        """Record the running processes of the job. Do nothing if the last record is recent."""
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + self._pause_s
        self._pause_s = min(2 * self._pause_s, LAST_S)
        with contextlib.suppress(OSError):  # too many open files
            self._seen |= {each.number: each.start_time for each in below(self._pid, all_processes())}

    def left(self) -> tuple[int, ...]:
        """Return the pids of the job's processes that still run half a second from now."""
        first = self._left()
        if not first:
            return ()
        time.sleep(LEAVES_S)
        return tuple(sorted(first & self._left()))

    def _left(self) -> set[int]:
        table = {number: each for number, each in all_processes().items() if each.state not in GONE}
        run = os.getppid()
        ours = {run, *(each.number for each in below(run, table))}
        group = os.getpgrp()
        # What is left of a job goes to init, or to a subreaper above us; a script in our group has children of its own.
        ancestors = _ancestors(run, table)
        reapers = {1, *(each for each in ancestors[1:] if each in table and table[each].group != group)}
        began = table[run].start_time if run in table else sys.maxsize
        found = set()
        for each in table.values():
            if each.number in ancestors:  # `timeout 1h preflight run`: in our group, and as young as we are
                continue
            is_orphan = each.group == group and each.parent in reapers and each.start_time >= began
            if is_orphan or self._seen.get(each.number) == each.start_time:
                found |= {each.number, *(child.number for child in below(each.number, table))}
        return found - ours


def named(left: tuple[int, ...]) -> str:
    """Return text that names processes of the job that still run. `left` are their pids.

    The text has the command lines of the first few processes.
    """
    texts = [f"pid {pid} ({_command_line(pid)})" for pid in left[:MOST_NAMED]]
    if len(left) > MOST_NAMED:
        texts.append(f"{len(left) - MOST_NAMED} more")
    many = "1 process of the job still runs" if len(left) == 1 else f"{len(left)} processes of the job still run"
    return f"{many} and may use GPU memory: {', '.join(texts)}"


def _ancestors(pid: int, table: dict[int, ProcessStat]) -> list[int]:
    found: list[int] = []
    while pid in table and (pid := table[pid].parent) not in found:
        found.append(pid)
    return found


def _command_line(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/cmdline", encoding="utf-8", errors="replace") as file:
            text = file.read(4 * CHARS).replace("\0", " ").strip()
    except OSError:
        return "gone"
    text = "".join(char if char.isprintable() else "?" for char in text)
    return text if len(text) <= CHARS else text[: CHARS - 1] + "…"
