"""NVML's numbers as words. Its enums are no versions and no bit is promised, so an unknown number is unreadable."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from preflight.errors import UnreadableFact
from preflight.model.gpu import (
    ComputeMode,
    Fabric,
    FabricState,
    LinkPeer,
    Mode,
    P2pStatus,
    RecoveryAction,
    VirtualizationMode,
)
from preflight.probe.reading import answered
from preflight.system.machine import Json

T = TypeVar("T")

MODES = {0: Mode.DISABLED, 1: Mode.ENABLED}
COMPUTE_MODES = dict(enumerate(ComputeMode))
VIRTUALIZATION_MODES = dict(enumerate(VirtualizationMode))
RECOVERY_ACTIONS = dict(enumerate(RecoveryAction))
FABRIC_STATES = dict(enumerate(FabricState))
P2P_STATUSES = dict(enumerate(P2pStatus))
PEERS = {0: LinkPeer.GPU, 1: LinkPeer.NPU, 2: LinkPeer.SWITCH, 255: LinkPeer.UNKNOWN}
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


def parse_number(words: Mapping[int, T], number: Json, what: str) -> T:
    """Return what an answered number stands for."""
    value = int(answered(number))
    if value not in words:
        raise UnreadableFact(f"NVML gave {value} for the {what}, which this version of preflight does not know")
    return words[value]


def parse_throttle_reasons(mask: Json) -> tuple[str, ...]:
    """Return why the clocks are lower than asked for, lowest bit first; an unknown bit as it is."""
    value = int(answered(mask))
    bits = [1 << i for i in range(max(0, value).bit_length()) if value >> i & 1]
    return tuple(THROTTLE_REASONS.get(bit, f"{bit:#x}") for bit in bits)


def parse_health(mask: int) -> tuple[str, ...]:
    """Return what the fabric's health mask calls wrong."""
    faults = [name for shift, name in FABRIC_FAULTS.items() if mask >> shift & 0x3 == 1]
    configuration = mask >> CONFIGURATION_SHIFT & 0xF
    if configuration in CONFIGURATION_FAULTS:
        faults.append(CONFIGURATION_FAULTS[configuration])
    return tuple(faults)


def parse_fabric(answer: Json) -> Fabric:
    """Return the registration with the NVSwitch fabric."""
    known = answered(answer)
    state = parse_number(FABRIC_STATES, known["state"], "fabric's state")
    return Fabric(state, str(known["problem"]), parse_health(int(known["health_mask"])))
