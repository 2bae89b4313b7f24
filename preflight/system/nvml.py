"""What the NVIDIA driver says through NVML; the one place that loads pynvml."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from typing import Any

from preflight.errors import UnreadableFact
from preflight.system.machine import Json

BUS_ID = re.compile(r"([0-9a-f]{4,8}):([0-9a-f]{2}):([0-9a-f]{2})\.([0-7])", re.ASCII | re.IGNORECASE)

MEANINGS = {
    "NVMLError_LibraryNotFound": "libnvidia-ml.so.1 is not there: no driver is installed, or not passed in",
    "NVMLError_DriverNotLoaded": "the nvidia kernel module is not loaded",
    "NVMLError_LibRmVersionMismatch": "the driver was updated, but the old kernel module is still loaded: reboot",
    "NVMLError_NoPermission": "this process may not use it",
    "NVMLError_GpuIsLost": "the GPU has fallen off the bus or can't be reached",
    "NVMLError_ResetRequired": "the GPU needs a reset",
    "NVMLError_NotSupported": "the driver does not offer it for this GPU",
    "NVMLError_FunctionNotFound": "this driver is too old to know it",
    "NVMLError_IrqIssue": "the GPU's interrupts do not arrive",
}


def ask_nvml(library: Any = None) -> Json:
    """Return `{driver_version, cuda_version, gpus}`, or `{error}` where NVML does not start.

    `library` has the functions of pynvml. Every value is read by itself: one that can't be is `{"unreadable":
    reason}`, and so is a GPU that NVML counts and does not open.
    """
    if library is None:
        try:
            import pynvml  # noqa: PLC0415 - a large module that only this needs
        except ImportError as error:
            return {"error": f"nvidia-ml-py can't be imported: {error}"}
        library = pynvml
    failures = _failures(library)
    try:
        library.nvmlInit()
    except failures as error:
        return {"error": _reason(error)}
    try:
        return _answers(library, failures)
    finally:
        _try(library.nvmlShutdown, failures)


def normalise_bdf(bus_id: str) -> str:
    """Return a PCI address as the kernel spells it: `00000000:1B:00.0` is `0000:1b:00.0`; UnreadableFact if none."""
    match = BUS_ID.fullmatch(bus_id)
    if match is None:
        raise UnreadableFact(f"NVML gave the bus id {bus_id[:40]!r}, which is not a PCI address")
    domain, bus, device, function = match.groups()
    return f"{int(domain, 16):04x}:{bus}:{device}.{function}".lower()


def _answers(library: Any, failures: tuple[type[Exception], ...]) -> Json:
    try:
        gpu_count = int(library.nvmlDeviceGetCount())
    except failures as error:
        return {"error": f"the GPUs can't be counted: {_reason(error)}"}
    return {
        "driver_version": _try(lambda: _text(library.nvmlSystemGetDriverVersion()), failures),
        "cuda_version": _try(lambda: _cuda(library.nvmlSystemGetCudaDriverVersion_v2()), failures),
        "gpus": [_gpu(library, index, failures) for index in range(gpu_count)],
    }


def _gpu(library: Any, index: int, failures: tuple[type[Exception], ...]) -> Json:
    try:
        handle = library.nvmlDeviceGetHandleByIndex(index)
    except failures as error:
        return {"nvml_index": index, "unreadable": _reason(error)}
    return {
        "nvml_index": index,
        "uuid": _try(lambda: _text(library.nvmlDeviceGetUUID(handle)), failures),
        "bdf": _try(lambda: normalise_bdf(_text(library.nvmlDeviceGetPciInfo(handle).busId)), failures),
        "name": _try(lambda: _text(library.nvmlDeviceGetName(handle)), failures),
        "memory_total_bytes": _try(lambda: int(library.nvmlDeviceGetMemoryInfo(handle).total), failures),
        "memory_free_bytes": _try(lambda: int(library.nvmlDeviceGetMemoryInfo(handle).free), failures),
    }


def _failures(library: Any) -> tuple[type[Exception], ...]:
    """NVML's own errors, and what pynvml lets through: undecodable text, a function it lacks, ctypes' refusals."""
    return (library.NVMLError, UnreadableFact, ValueError, TypeError, AttributeError, OSError, ctypes.ArgumentError)


def _try(call: Callable[[], Json], failures: tuple[type[Exception], ...]) -> Json:
    try:
        return call()
    except failures as error:
        return {"unreadable": _reason(error)}


def _reason(error: Exception) -> str:
    if isinstance(error, UnreadableFact):
        return str(error)
    name = type(error).__name__
    return f"{name}: {MEANINGS.get(name, str(error) or 'no reason given')}"


def _text(value: str | bytes) -> str:
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)


def _cuda(number: int) -> str:
    """Return 13.2 for 13020."""
    return f"{number // 1000}.{number % 1000 // 10}"
