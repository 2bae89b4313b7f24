"""Read whose the processes on a GPU are."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeVar

from preflight.errors import UnreadableFact
from preflight.model.facts import Gap
from preflight.model.gpu import GpuProcess
from preflight.probe.reading import answered, gap_or
from preflight.system.machine import Json, Machine

T = TypeVar("T")

# PROC_PID_INIT_INO: in any other namespace NVML's pids, which are the host's, name other processes or none.
HOST_PID_NAMESPACE = "pid:[4026531836]"


def probe_processes(machine: Machine, processes: Json) -> tuple[GpuProcess, ...]:
    """Return the processes with name and user, where /proc shows the processes of the host."""
    return tuple(_process(machine, process) for process in processes)


def _process(machine: Machine, process: Json) -> GpuProcess:
    pid = int(process["pid"])
    uid = gap_or(lambda: _of_host(machine, lambda: parse_uid(machine.text(f"proc/{pid}/status"))))
    return GpuProcess(
        pid=pid,
        used_bytes=gap_or(lambda: int(answered(process["used_bytes"]))),
        name=gap_or(lambda: _of_host(machine, lambda: machine.text(f"proc/{pid}/comm"))),
        uid=uid,
        is_ours=uid if isinstance(uid, Gap) else gap_or(lambda: uid == parse_uid(machine.text("proc/self/status"))),
    )


def _of_host(machine: Machine, read: Callable[[], T]) -> T:
    if machine.link("proc/self/ns/pid") != HOST_PID_NAMESPACE:
        raise UnreadableFact("this process has a PID namespace of its own and can't see the host's processes")
    return read()


def parse_uid(status: str) -> int:
    """Return the real user's number in the text of /proc/PID/status."""
    match = re.search(r"^Uid:\s+([0-9]{1,10})\s", status, re.MULTILINE | re.ASCII)
    if match is None:
        raise UnreadableFact("/proc/PID/status: there is no Uid")
    return int(match[1])
