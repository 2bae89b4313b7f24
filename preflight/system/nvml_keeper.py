"""`python -m preflight.system.nvml_keeper [LIBRARY]`: a process that keeps NVML open while its parent lives.

The process answers each line on stdin with one line of JSON. The answer has the memory in use in bytes, by GPU UUID.
"""
# An open NVML keeps the driver loaded, so that no test run waits for the driver. GPUs that could not be read are left
# out of the answer. If `watch_xids` forks the process, the process wakes all GPUs, and then reports the Xids of a run
# from NVML events.

from __future__ import annotations

import contextlib
import ctypes
import signal
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from preflight.errors import UnreadableFact
from preflight.system.child import Parent
from preflight.system.crew import Crew
from preflight.system.machine import Json
from preflight.system.nvml import LIBRARY, WAKING, failures_of, is_installed, open_nvml, unreadable
from preflight.system.nvml_values import as_text

KEEPER = "keeper"
XID_CRITICAL = 0x8
WAIT_MS = 200
READY_S = WAKING.call_s  # for each GPU that the driver has to wake
END_S = 1.0
HUNG = "NVML did not take the request for events in time: the driver hangs"


@dataclass(slots=True)
class XidWatch:
    """An NVML monitor process that wakes the GPUs and listens for Xids.

    `stop` ends the process and returns the Xids.
    """

    crew: Crew[str]
    messages: list[Json] = field(default_factory=list)

    def hear(self, timeout_s: float) -> bool:
        """Read the next message of the monitor process. Return whether a message came within `timeout_s` seconds."""
        said = [message for _, message, lost in self.crew.listen(timeout_s) if not lost]
        self.messages += said
        return bool(said)

    def wait(self) -> None:
        """Wait until NVML listens for Xids or has failed.

        Stop waiting if no message comes for READY_S seconds.
        """
        while self.hear(READY_S) and "awake" in self.messages[-1]:
            continue

    def end(self) -> None:
        """End the monitor process without using its messages."""
        self.crew.end(KEEPER)

    def stop(self) -> Mapping[tuple[int, int], int]:
        """End the monitor process, and return the count of each Xid, as {(NVML index, Xid): count}.

        Raise UnreadableFact if NVML could not be watched.
        """
        while self.hear(0.0):
            continue
        self.end()
        problem = next((message["unreadable"] for message in self.messages if "unreadable" in message), "")
        if problem or not any("listening" in message for message in self.messages):
            raise UnreadableFact(problem or HUNG)
        return Counter((message["gpu"], message["xid"]) for message in self.messages if "xid" in message)


def watch_xids(library_path: str | None = None) -> XidWatch:
    """Start a monitor process that wakes all GPUs and then listens for Xids.

    Call this function from a process with a single thread. The caller ends the monitor process.
    """
    watch = XidWatch(Crew(reap_s=END_S))
    watch.crew.fork(KEEPER, partial(_tell_xids, library_path))
    return watch


def _tell_xids(library_path: str | None, parent: Parent) -> None:
    try:
        if library_path is None and not is_installed():
            raise UnreadableFact(f"{LIBRARY} is not installed")
        nvml = open_nvml(library_path)
        try:
            for message in _xids(nvml):
                parent.send(message)
        except failures_of(nvml) as error:
            parent.send(unreadable(error))
            signal.pause()  # what it opened stays open, which keeps the GPUs awake
    except UnreadableFact as error:
        parent.send({"unreadable": str(error)})


def _xids(nvml: Any) -> Iterator[Json]:
    """Open every GPU, request its Xid events, and yield a message for each Xid.

    Before the first Xid, one message follows each opened GPU, and one message says that NVML listens.
    """
    handles = []
    for index in range(nvml.nvmlDeviceGetCount()):
        handles.append(nvml.nvmlDeviceGetHandleByIndex(index))
        yield {"awake": index}
    events = nvml.nvmlEventSetCreate()
    for handle in handles:
        nvml.nvmlDeviceRegisterEvents(handle, XID_CRITICAL, events)
    by_handle = {_address(handle): index for index, handle in enumerate(handles)}
    yield {"listening": len(by_handle)}
    while True:
        with contextlib.suppress(nvml.NVMLError_Timeout):
            event = nvml.nvmlEventSetWait_v2(events, WAIT_MS)
            if event.eventType == XID_CRITICAL:
                yield {"gpu": by_handle.get(_address(event.device), -1), "xid": int(event.eventData)}


def _address(handle: Any) -> int | None:
    return ctypes.cast(handle, ctypes.c_void_p).value


def main() -> None:
    """Answer each line on stdin with the memory in use, as {GPU UUID: bytes}, until stdin ends."""
    nvml = open_nvml(sys.argv[1] if len(sys.argv) > 1 else None)
    failures = failures_of(nvml)
    handles = {}
    for i in range(nvml.nvmlDeviceGetCount()):
        with contextlib.suppress(*failures):
            handle = nvml.nvmlDeviceGetHandleByIndex(i)
            handles[as_text(nvml.nvmlDeviceGetUUID(handle))] = handle
    parent = Parent(sys.stdout.fileno(), sys.stdin.fileno())
    for _ in parent.questions():
        used = {}
        for uuid, handle in handles.items():
            with contextlib.suppress(*failures):
                used[uuid] = int(nvml.nvmlDeviceGetMemoryInfo(handle).used)
        parent.send(used)


if __name__ == "__main__":
    main()
