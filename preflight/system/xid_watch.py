"""Xids that come up during a run, as NVML's events: the kernel log, which has them too, is often closed to users.

NVML tells only what happens after it was asked to, so a process of its own keeps NVML open from before the run to its
end; that also keeps the driver loaded where no persistence daemon does.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import time
from dataclasses import dataclass, field
from typing import Any

from preflight.errors import UnreadableFact
from preflight.system.machine import Json
from preflight.system.nvml import failures_of, unreadable
from preflight.system.processes import die_with_parent
from preflight.system.waiting import wait_for

XID_CRITICAL = 0x8
WAIT_MS = 200
READY_S = 5.0
END_S = 1.0
HUNG = "NVML did not take the request for events in time: the driver hangs"


@dataclass(slots=True)
class XidWatch:
    """A process that listens; `stop` ends it and gives what it heard."""

    pid: int
    fd: int
    received: bytearray = field(default_factory=bytearray)
    problem: str = ""

    def stop(self) -> dict[tuple[int, int], int]:
        """Return how often each GPU (nvml_index) had each Xid; UnreadableFact where nobody could listen."""
        os.set_blocking(self.fd, False)
        _read(self.fd, self.received, time.monotonic())
        os.close(self.fd)
        _end(self.pid)
        found: dict[tuple[int, int], int] = {}
        lines = [json.loads(line) for line in bytes(self.received).split(b"\n")[:-1]]
        problem = next((line["unreadable"] for line in lines if "unreadable" in line), "")
        if problem or not any("listening" in line for line in lines):
            raise UnreadableFact(problem or HUNG)
        for line in lines:
            if "xid" in line:
                key = (line["gpu"], line["xid"])
                found[key] = found.get(key, 0) + 1
        return found


def watch_xids(library_path: str | None = None) -> XidWatch:
    """Start listening, and return once NVML has agreed or failed. To be called from a process with a single thread."""
    reader, writer = os.pipe()
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        try:
            die_with_parent(parent)
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what Ctrl-C ends
            os.close(reader)
            _listen(writer, library_path)
        finally:
            os._exit(0)
    os.close(writer)
    watch = XidWatch(pid, reader)
    _read(reader, watch.received, time.monotonic() + READY_S)
    return watch


def _listen(writer: int, library_path: str | None) -> None:
    def tell(message: Json) -> None:
        os.write(writer, json.dumps(message).encode() + b"\n")

    try:
        import pynvml  # noqa: PLC0415  large, and only this process needs it
    except ImportError as error:
        tell({"unreadable": f"nvidia-ml-py can't be imported: {error}"})
        return
    nvml: Any = pynvml
    try:
        if library_path is not None:
            ctypes.CDLL(library_path)
        nvml.nvmlInit()
        events, by_handle = _registered(nvml)
    except failures_of(nvml) as error:
        tell(unreadable(error))
        return
    tell({"listening": len(by_handle)})
    while True:
        try:
            event = nvml.nvmlEventSetWait_v2(events, WAIT_MS)
        except nvml.NVMLError_Timeout:
            continue
        except failures_of(nvml) as error:
            tell(unreadable(error))
            return
        if event.eventType == XID_CRITICAL:
            tell({"gpu": by_handle.get(_address(event.device), -1), "xid": int(event.eventData)})


def _registered(nvml: Any) -> tuple[Any, dict[int | None, int]]:
    """Ask for the Xids of every GPU; return the set of events and the GPUs by their handle's address."""
    events = nvml.nvmlEventSetCreate()
    by_handle = {}
    for index in range(nvml.nvmlDeviceGetCount()):
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        nvml.nvmlDeviceRegisterEvents(handle, XID_CRITICAL, events)
        by_handle[_address(handle)] = index
    return events, by_handle


def _address(handle: Any) -> int | None:
    return ctypes.cast(handle, ctypes.c_void_p).value


def _read(fd: int, received: bytearray, until: float) -> None:
    """Take in what was told, until a first line is whole or time is up."""
    while True:
        readable = wait_for([fd], (), max(0.0, until - time.monotonic()))
        data = os.read(fd, 1 << 16) if readable else b""
        received.extend(data)
        if not data or (b"\n" in received and time.monotonic() < until):
            return


def _end(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    until = time.monotonic() + END_S
    while os.waitpid(pid, os.WNOHANG) == (0, 0) and time.monotonic() < until:
        time.sleep(0.001)
