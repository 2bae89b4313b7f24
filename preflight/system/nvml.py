"""Queries to the NVIDIA driver through NVML. No other module loads pynvml."""
# Known problems of pynvml and NVML: P2P capabilities are passed as numbers, because `NVML_P2P_CAPS_INDEX_READ` is a
# tuple. The indices of links may have gaps up to 36. Each field value and the fabric's state have their own return
# code.

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable, Iterator
from functools import partial
from itertools import combinations
from typing import Any

from preflight.errors import UnreadableFact
from preflight.system.isolate import Asker, Slow, isolate_calls
from preflight.system.machine import Json
from preflight.system.nvml_fields import GPU_FIELDS, LINK_FIELDS, LOAD_FIELDS, NvmlField
from preflight.system.nvml_values import as_text, cuda_version

LIBRARY = "libnvidia-ml.so.1"
MEANINGS = {
    "NVMLError_LibraryNotFound": "libnvidia-ml.so.1 is not there: no driver is installed, or not passed in",
    "NVMLError_DriverNotLoaded": "the nvidia kernel module is not loaded",
    "NVMLError_LibRmVersionMismatch": "the driver was updated, but the old kernel module is still loaded: reboot",
    "NVMLError_NoPermission": "this process may not use it",
    "NVMLError_GpuIsLost": "the GPU has fallen off the bus or can't be reached",
    "NVMLError_ResetRequired": "the GPU needs a reset",
    "NVMLError_NotSupported": "the driver does not report this for the GPU",
    "NVMLError_FunctionNotFound": "this driver is too old to know it",
    "NVMLError_IrqIssue": "the GPU's interrupts do not arrive",
}
# Without persistence mode the driver wakes each GPU at its first handle (nvml.h: nvmlInit_v2 initialises none), which
# takes 1 to 3 s, and lets it sleep again when the last user is gone.
WAKING = Slow("nvmlDeviceGetHandleByIndex", call_s=15.0, all_s=60.0)
MOST_LINKS = 36
MOST_GPUS = 1024
P2P_CAPABILITIES = range(5)  # read, write, NVLink, atomics, PCI
NO_SUCH_LINK = ("NVMLError_NotSupported", "NVMLError_InvalidArgument")
NOT_AT_ALL = ("NVMLError_FunctionNotFound", "NVMLError_GpuIsLost", "NVMLError_ResetRequired", "NVMLError_NoPermission")


def ask_nvml(library_path: str | None = None) -> Json:
    """Return `{driver_version, cuda_version, is_confidential, gpus, pairs}`, or `{error}` if NVML does not start.

    Call this function from a process with a single thread, because the function forks.
    """
    # An unreadable value or GPU is `{"unreadable": reason, "error": NVML's name of the error}`. `library_path` replaces
    # the system's library.
    if library_path is None and not is_installed():  # asked first: pynvml takes longer to load than all other probes
        name = "NVMLError_LibraryNotFound"
        return {"error": f"{name}: {MEANINGS[name]}"}
    try:
        nvml = _bindings()
    except UnreadableFact as error:
        return {"error": str(error)}
    start = partial(_start, nvml, library_path)
    return isolate_calls(lambda asker: _read_all(nvml, start, asker), failures_of(nvml), unreadable, slow=WAKING)


def open_nvml(library_path: str | None = None) -> Any:
    """Return pynvml with NVML started.

    Calls may hang in the driver, so use the result in a child process. Raise UnreadableFact if NVML does not start.
    """
    # The process must be one that another process can end.
    nvml = _bindings()
    with _as_unreadable(nvml):
        _start(nvml, library_path)
    return nvml


def open_load_reader(uuid: str, library_path: str | None = None) -> Callable[[], Json]:
    """Return a function that reads the values of the GPU `uuid` under load, such as clocks and power.

    Calls may hang in the driver, so use the function in a child process. Raise UnreadableFact if the GPU can't be
    opened.
    """
    # The process must be one that another process can end.
    nvml = open_nvml(library_path)
    with _as_unreadable(nvml):
        handle = nvml.nvmlDeviceGetHandleByUUID(uuid.encode())
    return lambda: {field.key: _read(nvml, handle, field) for field in LOAD_FIELDS}


def _read(nvml: Any, handle: Any, field: NvmlField) -> Json:
    answer: Json = None
    for _, call in field.calls:
        try:
            return call(nvml, handle)
        except failures_of(nvml) as error:
            answer = unreadable(error)
    return answer


def is_installed() -> bool:
    """Return whether the driver's NVML library can be loaded."""
    try:
        ctypes.CDLL(LIBRARY)
    except OSError:
        return False
    return True


def _bindings() -> Any:
    try:
        import pynvml  # noqa: PLC0415  large, and most commands need none of it
    except ImportError as error:
        raise UnreadableFact(f"nvidia-ml-py can't be imported: {error}") from None
    return pynvml


def _start(nvml: Any, library_path: str | None) -> None:
    if library_path is not None:
        ctypes.CDLL(library_path)  # pynvml then finds it by its soname
    nvml.nvmlInit()


def failures_of(library: Any) -> tuple[type[Exception], ...]:
    """Return the exception classes that an NVML call may raise. `library` is pynvml."""
    return (library.NVMLError, UnreadableFact, ValueError, TypeError, AttributeError, OSError, ctypes.ArgumentError)


@contextlib.contextmanager
def _as_unreadable(library: Any) -> Iterator[None]:
    try:
        yield
    except failures_of(library) as error:
        raise UnreadableFact(unreadable(error)["unreadable"]) from None


def unreadable(error: Exception) -> Json:
    """Return {"unreadable": reason} for a value that could not be read because of `error`.

    For an error of NVML, the name of the error is added under "error".
    """
    if isinstance(error, UnreadableFact):
        return {"unreadable": str(error)}
    name = type(error).__name__
    return {"unreadable": f"{name}: {MEANINGS.get(name, str(error) or 'no reason given')}", "error": name}


def _is_unreadable(answer: Json) -> bool:
    return isinstance(answer, dict) and "unreadable" in answer


def _read_all(nvml: Any, start: Callable[[], None], asker: Asker) -> Json:
    """Return the result of `ask_nvml`.

    If `asker` makes no calls, the result has only the values that are known already.
    """
    asker.again("nvmlInit", start)
    started = asker.outcome("nvmlInit")
    if _is_unreadable(started):
        return {"error": started["unreadable"]}
    count = asker.ask("nvmlDeviceGetCount", lambda: int(nvml.nvmlDeviceGetCount()))
    if _is_unreadable(count):
        return {"error": f"the GPUs can't be counted: {count['unreadable']}"}
    handles = [
        asker.again(f"nvmlDeviceGetHandleByIndex/{i}", partial(nvml.nvmlDeviceGetHandleByIndex, i))
        for i in range(min(count, MOST_GPUS))
    ]
    opened = [asker.outcome(f"nvmlDeviceGetHandleByIndex/{i}") for i in range(len(handles))]
    readable = [i for i, outcome in enumerate(opened) if not _is_unreadable(outcome)]
    answer = {
        "driver_version": asker.ask("nvmlSystemGetDriverVersion", lambda: as_text(nvml.nvmlSystemGetDriverVersion())),
        "cuda_version": asker.ask(
            "nvmlSystemGetCudaDriverVersion", lambda: cuda_version(nvml.nvmlSystemGetCudaDriverVersion_v2())
        ),
        "is_confidential": asker.ask(
            "nvmlSystemGetConfComputeState", lambda: bool(nvml.nvmlSystemGetConfComputeState().ccFeature)
        ),
        "gpus": [
            _gpu(nvml, asker, i, handles[i]) if i in readable else {"nvml_index": i, **opened[i]}
            for i in range(len(handles))
        ],
        "pairs": [_pair(nvml, asker, (a, handles[a]), (b, handles[b])) for a, b in combinations(readable, 2)],
    }
    asker.again("nvmlShutdown", nvml.nvmlShutdown)
    return answer


def _gpu(nvml: Any, asker: Asker, index: int, handle: Any) -> Json:
    answer: dict[str, Json] = {"nvml_index": index}
    for field in GPU_FIELDS:
        for function, call in field.calls:
            answer[field.key] = asker.ask(f"{function}/{index}", partial(call, nvml, handle))
            if not _is_unreadable(answer[field.key]) or "error" not in answer[field.key]:
                break  # a call that hung is not tried under another name
    answer["nvlinks"] = _links(nvml, asker, index, handle)
    return answer


def _links(nvml: Any, asker: Asker, index: int, handle: Any) -> Json:
    """Return one entry for each existing NVLink.

    The result is empty if the GPU has no NVLink.
    """
    links = []
    for link in range(MOST_LINKS):
        entry: dict[str, Json] = {"link": link}
        for field in LINK_FIELDS:
            call = partial(field.calls[0][1], nvml, handle, link)
            entry[field.key] = asker.ask(f"nvlink_{field.key}/{index}/{link}", call)
            error = entry[field.key].get("error") if _is_unreadable(entry[field.key]) else None
            if field.key == "state" and error in NO_SUCH_LINK:
                break
            if field.key == "state" and error in NOT_AT_ALL:
                return entry[field.key]
        else:
            links.append(entry)
    return links


def _pair(nvml: Any, asker: Asker, first: tuple[int, Any], second: tuple[int, Any]) -> Json:
    (a, one), (b, other) = first, second

    def asked(function: str, *capability: int) -> Json:
        key = "/".join(map(str, (function, a, b, *capability)))
        return asker.ask(key, lambda: int(getattr(nvml, function)(one, other, *capability)))

    ancestor = asked("nvmlDeviceGetTopologyCommonAncestor")
    return {"a": a, "b": b, "ancestor": ancestor, "p2p": [asked("nvmlDeviceGetP2PStatus", c) for c in P2P_CAPABILITIES]}
