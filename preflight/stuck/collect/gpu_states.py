"""Use, power and clocks of the GPUs: 100 % use at low power hints at a kernel that waits."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from preflight.model.gap import Gap
from preflight.model.stuck_evidence import GpuState
from preflight.system.machine import Json, Machine

AGAIN_AFTER_S = 1.0


def read_gpus(machine: Machine, again_after_s: float = AGAIN_AFTER_S) -> tuple[GpuState, ...] | Gap:
    """Return what NVML says of each GPU, the lowest use and highest power of two looks; a Gap without an answer."""
    looks = []
    for pause_s in (again_after_s, 0.0):
        answer = machine.ask("nvml")
        if "error" in answer:
            return Gap(str(answer["error"]))
        looks.append(tuple(_gpu(each) for each in answer["gpus"]))
        time.sleep(pause_s)
    first, last = looks
    return tuple(map(_both, first, last)) if len(first) == len(last) else last


def _both(first: GpuState, last: GpuState) -> GpuState:
    """Return the last look, with a use and a power that show whether it computed at either."""
    return replace(
        last, utilization_percent=_extreme(min, first.utilization_percent, last.utilization_percent),
        power_w=_extreme(max, first.power_w, last.power_w),
    )  # fmt: skip


def _extreme(choose: Callable[[float, float], float], one: float | Gap, other: float | Gap) -> float | Gap:
    return other if isinstance(one, Gap) or isinstance(other, Gap) else choose(one, other)


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
