"""What the NVIDIA driver says through NVML; the one place that loads pynvml."""

from __future__ import annotations

import ctypes
from typing import Any

from preflight.errors import UnreadableFact
from preflight.system.machine import Json
from preflight.system.nvml_calls import read_all
from preflight.system.stepwise import ask_stepwise

LIBRARY = "libnvidia-ml.so.1"
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


def ask_nvml(library_path: str | None = None) -> Json:
    """Return `{driver_version, cuda_version, gpus, pairs}`, or `{error}` where NVML does not start.

    Every value is read by itself: one that can't be is `{"unreadable": reason, "error": NVML's name for it}`, and so is
    a GPU that NVML counts and does not open. `library_path` is a library to use in place of the system's. Must be
    called from a process with a single thread, since it forks.
    """
    if library_path is None and not _is_there():  # asked first: pynvml takes longer to load than all other probes
        name = "NVMLError_LibraryNotFound"
        return {"error": f"{name}: {MEANINGS[name]}"}
    try:
        import pynvml  # noqa: PLC0415 - a large module that only this needs
    except ImportError as error:
        return {"error": f"nvidia-ml-py can't be imported: {error}"}

    nvml: Any = pynvml

    def start() -> None:
        if library_path is not None:
            ctypes.CDLL(library_path)  # pynvml then finds it by its soname
        nvml.nvmlInit()

    return ask_stepwise(lambda asker: read_all(nvml, start, asker), failures_of(nvml), unreadable)


def _is_there() -> bool:
    try:
        ctypes.CDLL(LIBRARY)
    except OSError:
        return False
    return True


def failures_of(library: Any) -> tuple[type[Exception], ...]:
    """Return NVML's own errors, and what pynvml lets through: undecodable text, an unknown name, ctypes' refusals."""
    return (library.NVMLError, UnreadableFact, ValueError, TypeError, AttributeError, OSError, ctypes.ArgumentError)


def unreadable(error: Exception) -> Json:
    """Return what stands in the place of a value that could not be read."""
    if isinstance(error, UnreadableFact):
        return {"unreadable": str(error)}
    name = type(error).__name__
    return {"unreadable": f"{name}: {MEANINGS.get(name, str(error) or 'no reason given')}", "error": name}
