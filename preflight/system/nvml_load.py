"""Read one GPU's clocks, heat, power and link through NVML, again and again, from inside a process that may die."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from preflight.errors import UnreadableFact
from preflight.system.machine import Json
from preflight.system.nvml import failures_of, unreadable

SM_CLOCK, GPU_SENSOR = 1, 0


def open_load_reader(uuid: str, library_path: str | None = None) -> Callable[[], Json]:
    """Return a function that reads all values once, each by itself; UnreadableFact where NVML or the GPU won't open.

    Calls may hang in the driver: use it from a process that somebody else ends.
    """
    try:
        import pynvml  # noqa: PLC0415  large, and only this process needs it
    except ImportError as error:
        raise UnreadableFact(f"nvidia-ml-py can't be imported: {error}") from None
    nvml: Any = pynvml
    failures = failures_of(nvml)
    try:
        if library_path is not None:
            ctypes.CDLL(library_path)  # pynvml then finds it by its soname
        nvml.nvmlInit()
        handle = nvml.nvmlDeviceGetHandleByUUID(uuid.encode())
    except failures as error:
        raise UnreadableFact(unreadable(error)["unreadable"]) from None
    calls = _calls(nvml, handle)

    def read() -> Json:
        answer = {}
        for name, call in calls.items():
            try:
                answer[name] = int(call())
            except failures as error:
                answer[name] = unreadable(error)
        return answer

    return read


def _calls(nvml: Any, handle: Any) -> dict[str, Callable[[], Any]]:
    def throttle_reasons() -> Any:
        try:
            return nvml.nvmlDeviceGetCurrentClocksEventReasons(handle)
        except (AttributeError, nvml.NVMLError):  # an older pynvml or driver knows the other name only
            return nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)

    return {
        "sm_mhz": lambda: nvml.nvmlDeviceGetClockInfo(handle, SM_CLOCK),
        "temperature_c": lambda: nvml.nvmlDeviceGetTemperature(handle, GPU_SENSOR),
        "power_mw": lambda: nvml.nvmlDeviceGetPowerUsage(handle),
        "throttle_reasons": throttle_reasons,
        "pcie_gen": lambda: nvml.nvmlDeviceGetCurrPcieLinkGeneration(handle),
        "pcie_width": lambda: nvml.nvmlDeviceGetCurrPcieLinkWidth(handle),
    }
