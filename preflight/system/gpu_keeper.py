"""`python -m preflight.system.gpu_keeper [LIBRARY]`: keeps NVML open, and says how much memory the GPUs hold.

While somebody has NVML open the driver stays loaded: without persistence mode each trial would wait for it anew. It
is a process of its own, since NVML may hang and the supervisor that forks trials may not. Each line on stdin is
answered by one line of JSON: bytes in use by GPU UUID, without those that could not be read.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import sys
from typing import Any

from preflight.system.nvml import failures_of
from preflight.system.processes import die_with_parent

PARENT = "PREFLIGHT_SUPERVISOR_PID"


def main() -> None:
    """Answer until stdin ends or the parent dies."""
    die_with_parent(int(os.environ[PARENT]))
    import pynvml  # noqa: PLC0415 - a large module that only this needs

    nvml: Any = pynvml
    if len(sys.argv) > 1:
        ctypes.CDLL(sys.argv[1])  # pynvml then finds it by its soname
    nvml.nvmlInit()
    failures = failures_of(nvml)
    handles = {}
    for i in range(nvml.nvmlDeviceGetCount()):
        with contextlib.suppress(*failures):
            handle = nvml.nvmlDeviceGetHandleByIndex(i)
            uuid = nvml.nvmlDeviceGetUUID(handle)
            handles[uuid.decode() if isinstance(uuid, bytes) else str(uuid)] = handle
    for _ in sys.stdin:
        used = {}
        for uuid, handle in handles.items():
            with contextlib.suppress(*failures):
                used[uuid] = int(nvml.nvmlDeviceGetMemoryInfo(handle).used)
        sys.stdout.write(json.dumps(used) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
