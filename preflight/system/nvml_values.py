"""Conversion of NVML's records to JSON values, and of NVML's numbers to words.

An unknown number becomes an unreadable value.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Mapping
from typing import Any, TypeVar

from preflight.errors import UnreadableFact
from preflight.model import gpu
from preflight.system.machine import Json

T = TypeVar("T")

BUS_ID = re.compile(r"([0-9a-f]{4,8}):([0-9a-f]{2}):([0-9a-f]{2})\.([0-7])", re.ASCII | re.IGNORECASE)
WORD_BITS = 64
# nvmlReturn_t, and a field id that no driver has.
INVALID_ARGUMENT, NOT_SUPPORTED, UNKNOWN_ERROR, NO_FIELD = 2, 3, 999, 9999
OLD_MEMORY = "this driver counts reserved memory as used"

MODES = {0: gpu.Mode.DISABLED, 1: gpu.Mode.ENABLED}
COMPUTE_MODES = dict(enumerate(gpu.ComputeMode))
VIRTUALIZATION_MODES = dict(enumerate(gpu.VirtualizationMode))
RECOVERY_ACTIONS = dict(enumerate(gpu.RecoveryAction))
FABRIC_STATES = dict(enumerate(gpu.FabricState))
P2P_STATUSES = dict(enumerate(gpu.P2pStatus))
PEERS = {0: gpu.LinkPeer.GPU, 1: gpu.LinkPeer.NPU, 2: gpu.LinkPeer.SWITCH, 255: gpu.LinkPeer.UNKNOWN}
NVLINK_GENERATIONS = {1: "1.0", 2: "2.0", 3: "2.2", 4: "3.0", 5: "3.1", 6: "4.0", 7: "5.0", 8: "6.0"}
ANCESTORS = {0: "PIX", 10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}
THROTTLE_REASONS = {
    0x1: "idle",
    0x2: "applications_clocks",
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake_slowdown",
    0x100: "display_clocks",
}
# Two bits each: 1 says that it is so, 2 that it is not, 0 that the driver can't tell.
FABRIC_FAULTS = {0: "degraded_bandwidth", 2: "route_recovery", 4: "route_unhealthy", 6: "access_timeout_recovery"}
CONFIGURATION_SHIFT = 8
CONFIGURATION_FAULTS = {
    2: "incorrect_sysguid",
    3: "incorrect_chassis_sn",
    4: "no_partition",
    5: "insufficient_nvlinks",
    6: "incompatible_gpu_firmware",
    7: "invalid_location",
    8: "gpu_state_invalid",
}


def as_text(value: str | bytes) -> str:
    """Return a text from NVML as str. Some versions of pynvml return bytes."""
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)


def normalise_bdf(bus_id: str) -> str:
    """Return a PCI address such as `00000000:1B:00.0` in the kernel's form `0000:1b:00.0`.

    Raise UnreadableFact if `bus_id` is not a PCI address.
    """
    match = BUS_ID.fullmatch(bus_id)
    if match is None:
        raise UnreadableFact(f"NVML gave the bus id {bus_id[:40]!r}, which is not a PCI address")
    domain, bus, device, function = match.groups()
    return f"{int(domain, 16):04x}:{bus}:{device}.{function}".lower()


def pci_address(info: Any) -> str:
    """Return the PCI address in `info`, an NVML record, in the kernel's form."""
    return normalise_bdf(as_text(info.busId))


def whole_numbers(numbers: Any) -> Json:
    """Return NVML numbers as a list of integers."""
    return [int(number) for number in numbers]


def memory_sizes(info: Any) -> Json:
    """Return the sizes in an NVML memory record, in bytes.

    Only the second version of the record has `reserved`. The first version counts reserved memory as used.
    """
    names = [name for name in ("total", "reserved", "free", "used") if hasattr(info, name)]
    return {f"{name}_bytes": int(getattr(info, name)) for name in names}


def process_records(entries: Any) -> Json:
    """Return the pid and the used memory in bytes of each process in a list from NVML."""
    why = {"unreadable": "the driver does not tell how much memory it uses"}
    used = [(int(entry.pid), entry.usedGpuMemory) for entry in entries]
    return [{"pid": pid, "used_bytes": why if size is None else int(size)} for pid, size in used]


def field_value(nvml: Any, handle: Any, field_id: int) -> Json:
    """Return the value of the NVML field `field_id` of the GPU `handle`.

    Raise NVMLError if the field can't be read.
    """
    # If the driver does not offer the field, the code is NOT_SUPPORTED.
    value = nvml.nvmlDeviceGetFieldValues(handle, [field_id])[0]
    code = int(value.nvmlReturn)
    if code == INVALID_ARGUMENT or (code == UNKNOWN_ERROR and _code_of_no_field(nvml, handle) == code):
        code = NOT_SUPPORTED
    if code:
        raise nvml.NVMLError(code)
    return int(value.value.uiVal)


def _code_of_no_field(nvml: Any, handle: Any) -> int:
    return int(nvml.nvmlDeviceGetFieldValues(handle, [NO_FIELD])[0].nvmlReturn)


def fabric_record(nvml: Any, handle: Any) -> Json:
    """Return NVML's data on the GPU's registration with the NVSwitch fabric, as `{state, problem, health_mask}`.

    `problem` is the error of a failed registration, or "".
    """
    info = nvml.c_nvmlGpuFabricInfoV_t()
    nvml.nvmlDeviceGetGpuFabricInfoV(handle, ctypes.byref(info))
    status = int(info.status)
    problem = f"{type(nvml.NVMLError(status)).__name__}: {nvml.NVMLError(status)}" if status else ""
    return {"state": int(info.state), "problem": problem, "health_mask": int(info.healthMask)}


def bits_set(words: Any) -> Json:
    """Return the numbers of the bits that are set in `words`. Bit i of word w has the number 64w + i."""
    return [WORD_BITS * w + i for w, word in enumerate(words) for i in range(WORD_BITS) if int(word) >> i & 1]


def cuda_version(number: int) -> str:
    """Return a CUDA version as text, such as `13.2` for NVML's 13020."""
    return f"{number // 1000}.{number % 1000 // 10}"


def parse_number(words: Mapping[int, T], number: Json, what: str) -> T:
    """Return the meaning of an NVML number from the table `words`.

    Raise UnreadableFact if the number is not in `words`. The message names `what`.
    """
    value = int(number)
    if value not in words:
        raise UnreadableFact(f"NVML gave {value} for the {what}, which this version of preflight does not know")
    return words[value]


def parse_set(numbers: Json, what: str) -> tuple[int, ...]:
    """Return `numbers` as a tuple. Raise UnreadableFact if `numbers` is empty. The message names `what`."""
    if not numbers:
        raise UnreadableFact(f"NVML gave an empty {what}")
    return tuple(int(number) for number in numbers)


def parse_memory(sizes: Json, name: str) -> int:
    """Return the memory size `name` (such as "total") in bytes. Raise UnreadableFact if the size is missing."""
    if name not in sizes:
        raise UnreadableFact(OLD_MEMORY)
    return int(sizes[name])


def parse_row_remap(numbers: Json) -> gpu.RowRemap:
    """Return the record of replaced memory rows (row remapping) from NVML's four numbers."""
    correctable, uncorrectable, pending, failed = (int(number) for number in numbers)
    return gpu.RowRemap(correctable, uncorrectable, is_pending=bool(pending), has_failed=bool(failed))


def parse_throttle_reasons(mask: Json) -> tuple[str, ...]:
    """Return the reasons in `mask` for reduced GPU clocks, lowest bit first.

    An unknown bit becomes a hexadecimal number.
    """
    value = int(mask)
    bits = [1 << i for i in range(max(0, value).bit_length()) if value >> i & 1]
    return tuple(THROTTLE_REASONS.get(bit, f"{bit:#x}") for bit in bits)


def parse_health(mask: int) -> tuple[str, ...]:
    """Return the faults that the health mask of the NVSwitch fabric reports, or an empty tuple."""
    faults = [name for shift, name in FABRIC_FAULTS.items() if mask >> shift & 0x3 == 1]
    configuration = mask >> CONFIGURATION_SHIFT & 0xF
    if configuration in CONFIGURATION_FAULTS:
        faults.append(CONFIGURATION_FAULTS[configuration])
    return tuple(faults)


def parse_fabric(record: Json) -> gpu.Fabric:
    """Return the GPU's registration with the NVSwitch fabric, parsed from the result of `fabric_record`."""
    state = parse_number(FABRIC_STATES, record["state"], "fabric's state")
    return gpu.Fabric(state, str(record["problem"]), parse_health(int(record["health_mask"])))
