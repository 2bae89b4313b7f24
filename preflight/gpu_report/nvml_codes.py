"""Print the return code and the duration of every NVML call that preflight makes, as lines of JSON.

The duration is in milliseconds.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

from preflight.system.nvml import MOST_LINKS, P2P_CAPABILITIES, failures_of, open_nvml
from preflight.system.nvml_fields import GET_GPU_RECOVERY_ACTION, GPU_FIELDS, LINK_FIELDS

NO_SUCH_FIELD = 9999  # shows how this driver answers for a field that it does not know
MOST_TEXT = 200
KEPT_OUT = ("Handle", "Processes", "UUID")  # a pointer; whose processes run; which card it is


def main() -> None:
    """Make every NVML call and print each result at once. If a call hangs, the earlier results are not lost."""
    nvml = None

    def start() -> str:
        nonlocal nvml
        nvml = open_nvml()
        return "started"

    _timed("nvmlInit", start, None)
    if nvml is None:
        return
    _timed("nvmlSystemGetDriverVersion", nvml.nvmlSystemGetDriverVersion, nvml)
    _timed("nvmlSystemGetNVMLVersion", nvml.nvmlSystemGetNVMLVersion, nvml)
    _timed("nvmlSystemGetCudaDriverVersion_v2", nvml.nvmlSystemGetCudaDriverVersion_v2, nvml)
    _timed("nvmlSystemGetConfComputeState", _call(_confidential, nvml), nvml)
    count = _timed("nvmlDeviceGetCount", nvml.nvmlDeviceGetCount, nvml)
    handles = [_timed(f"nvmlDeviceGetHandleByIndex({i})", _call(nvml.nvmlDeviceGetHandleByIndex, i), nvml)
               for i in range(count if isinstance(count, int) else 0)]  # fmt: skip
    for i, handle in enumerate(handles):
        if handle is not None:
            _gpu(nvml, i, handle)
    for a, one in enumerate(handles):
        for b, other in enumerate(handles[a + 1 :], a + 1):
            if one is not None and other is not None:
                _pair(nvml, f"({a},{b})", one, other)


def _gpu(nvml: Any, i: int, handle: Any) -> None:
    for field in GPU_FIELDS:
        for name, call in field.calls:
            _timed(f"{name}[{i}]", _call(call, nvml, handle), nvml)
    for field_id in (GET_GPU_RECOVERY_ACTION, NO_SUCH_FIELD):
        _timed(f"nvmlDeviceGetFieldValues({field_id})[{i}]", _call(_field, nvml, handle, field_id), nvml)
    for link in range(MOST_LINKS):
        for field in LINK_FIELDS:
            for name, call in field.calls:
                _timed(f"{name}[{i}] link {link}", _call(call, nvml, handle, link), nvml)


def _pair(nvml: Any, pair: str, one: Any, other: Any) -> None:
    ancestor = nvml.nvmlDeviceGetTopologyCommonAncestor
    _timed(f"nvmlDeviceGetTopologyCommonAncestor{pair}", _call(ancestor, one, other), nvml)
    for capability in P2P_CAPABILITIES:
        status = _call(nvml.nvmlDeviceGetP2PStatus, one, other, capability)
        _timed(f"nvmlDeviceGetP2PStatus({capability}){pair}", status, nvml)


def _field(nvml: Any, handle: Any, field_id: int) -> dict[str, Any]:
    (value,) = nvml.nvmlDeviceGetFieldValues(handle, [field_id])
    return {"code": value.nvmlReturn, "value": value.value.ullVal}


def _confidential(nvml: Any) -> Any:
    return nvml.nvmlSystemGetConfComputeState()  # an old nvidia-ml-py does not have it


def _call(function: Callable[..., Any], *arguments: Any) -> Callable[[], Any]:
    return lambda: function(*arguments)


def _timed(name: str, call: Callable[[], Any], nvml: Any) -> Any:
    """Make a call, print its return code and duration, and return its result.

    Return None if the call failed.
    """
    answer, code, text = None, 0, ""
    since = time.monotonic()
    failures = (Exception,) if nvml is None else failures_of(nvml)
    try:
        answer = call()
        text = "" if any(word in name for word in KEPT_OUT) else str(answer)
    except failures as error:
        code, text = getattr(error, "value", -1), f"{type(error).__name__}: {error}"
    took_ms = (time.monotonic() - since) * 1e3
    sys.stdout.write(json.dumps({"call": name, "code": code, "ms": round(took_ms, 3), "text": text[:MOST_TEXT]}) + "\n")
    sys.stdout.flush()
    return answer if answer is not None or code else True


if __name__ == "__main__":
    main()
