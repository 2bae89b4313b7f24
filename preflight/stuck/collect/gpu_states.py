"""Use, power and clocks of the GPUs: 100 % use at low power hints at a kernel that waits."""

from __future__ import annotations

from preflight.model.gap import Gap
from preflight.model.stuck_evidence import GpuState
from preflight.system.machine import Json, Machine


def read_gpus(machine: Machine) -> tuple[GpuState, ...] | Gap:
    """Return what NVML says of each GPU; a Gap where NVML does not answer."""
    answer = machine.ask("nvml")
    if "error" in answer:
        return Gap(str(answer["error"]))
    return tuple(_gpu(each) for each in answer["gpus"])


def _gpu(each: Json) -> GpuState:
    if "unreadable" in each:
        lost = Gap(str(each["unreadable"]))
        return GpuState(int(each["nvml_index"]), lost, lost, lost, lost, lost)
    uuid = each.get("uuid")
    return GpuState(
        int(each["nvml_index"]), uuid if isinstance(uuid, str) else Gap(_why(uuid)),
        _number(each, "utilization_percent"), _number(each, "power_mw", 1000), _number(each, "power_limit_mw", 1000),
        _number(each, "sm_mhz"),
    )  # fmt: skip


def _number(each: Json, key: str, scale: float = 1) -> float | Gap:
    value = each.get(key)
    return value / scale if isinstance(value, (int, float)) else Gap(_why(value))


def _why(value: Json) -> str:
    return str(value["unreadable"]) if isinstance(value, dict) and "unreadable" in value else "NVML did not say it"
