"""NVML's records and enums as plain JSON values, before any of them gets a meaning."""

from __future__ import annotations

import ctypes
import re
from typing import Any

from preflight.errors import UnreadableFact
from preflight.system.machine import Json

BUS_ID = re.compile(r"([0-9a-f]{4,8}):([0-9a-f]{2}):([0-9a-f]{2})\.([0-7])", re.ASCII | re.IGNORECASE)
WORD_BITS = 64


def normalise_bdf(bus_id: str) -> str:
    """Return a PCI address as the kernel spells it: `00000000:1B:00.0` is `0000:1b:00.0`; UnreadableFact if none."""
    match = BUS_ID.fullmatch(bus_id)
    if match is None:
        raise UnreadableFact(f"NVML gave the bus id {bus_id[:40]!r}, which is not a PCI address")
    domain, bus, device, function = match.groups()
    return f"{int(domain, 16):04x}:{bus}:{device}.{function}".lower()


def memory_sizes(info: Any) -> Json:
    """Return the sizes; only the second version of the record has `reserved`, which the first counts as used."""
    names = [name for name in ("total", "reserved", "free", "used") if hasattr(info, name)]
    return {f"{name}_bytes": int(getattr(info, name)) for name in names}


def process_record(entry: Any) -> Json:
    """Return pid and memory of one process."""
    used = entry.usedGpuMemory
    why = {"unreadable": "the driver does not tell how much memory it uses"}
    return {"pid": int(entry.pid), "used_bytes": why if used is None else int(used)}


def retired_count(nvml: Any, cause: int, handle: Any) -> Json:
    """Return how many pages were retired for this cause."""
    return len(nvml.nvmlDeviceGetRetiredPages(handle, cause))


def field_value(nvml: Any, handle: Any, field_id: int) -> Json:
    """Return a field value; each has a return code of its own."""
    value = nvml.nvmlDeviceGetFieldValues(handle, [field_id])[0]
    if value.nvmlReturn:
        raise nvml.NVMLError(value.nvmlReturn)
    return int(value.value.uiVal)


def fabric_record(nvml: Any, handle: Any) -> Json:
    """Return the fabric record; its own status says whether registration failed."""
    info = nvml.c_nvmlGpuFabricInfoV_t()
    nvml.nvmlDeviceGetGpuFabricInfoV(handle, ctypes.byref(info))
    status = int(info.status)
    problem = f"{type(nvml.NVMLError(status)).__name__}: {nvml.NVMLError(status)}" if status else ""
    return {"state": int(info.state), "problem": problem, "health_mask": int(info.healthMask)}


def bits_set(words: Any) -> Json:
    """Return which bits are set; bit i of word w stands for CPU or node 64w + i."""
    return [WORD_BITS * w + i for w, word in enumerate(words) for i in range(WORD_BITS) if int(word) >> i & 1]


def as_text(value: str | bytes) -> str:
    """Return text whether this pynvml decodes or not."""
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)


def cuda_version(number: int) -> str:
    """Return 13.2 for 13020."""
    return f"{number // 1000}.{number % 1000 // 10}"
