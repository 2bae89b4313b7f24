"""The utilization, power and clocks of the GPUs."""

from __future__ import annotations

import time
from dataclasses import replace

from preflight.model.gap import Gap
from preflight.model.stuck_evidence import GpuState
from preflight.system.machine import Json, Machine

AGAIN_AFTER_S = 1.0


def read_gpus(machine: Machine, again_after_s: float = AGAIN_AFTER_S) -> tuple[GpuState, ...] | Gap:
    """Return the state of each GPU, or a Gap object if NVML can't be queried.

    The function reads the values twice, `again_after_s` seconds apart.
    """
    # The lower utilization and the higher power are kept.
    looks = []
    for pause_s in (again_after_s, 0.0):
        answer = machine.ask("nvml")
        if "error" in answer:
            return Gap(str(answer["error"]))
        looks.append([parse_gpu(each) for each in answer["gpus"]])
        time.sleep(pause_s)
    first, last = looks
    if len(first) != len(last):
        return tuple(last)
    gpus = []
    for before, gpu in zip(first, last, strict=True):
        use, power_w = gpu.utilization_percent, gpu.power_w
        if not isinstance(use, Gap) and not isinstance(before.utilization_percent, Gap):
            use = min(before.utilization_percent, use)
        if not isinstance(power_w, Gap) and not isinstance(before.power_w, Gap):
            power_w = max(before.power_w, power_w)
        gpus.append(replace(gpu, utilization_percent=use, power_w=power_w))
    return tuple(gpus)


def parse_gpu(each: Json) -> GpuState:
    """Return the state of a GPU from `each`, the GPU's record in NVML's reply.

    A missing value is a Gap.
    """

    def number(key: str, scale: float = 1) -> float | Gap:
        value = each.get(key)
        return value / scale if isinstance(value, (int, float)) else why_not(value)

    def why_not(value: Json) -> Gap:
        is_told = isinstance(value, dict) and "unreadable" in value
        return Gap(str(value["unreadable"]) if is_told else "NVML did not report this value")

    index = int(each["nvml_index"])
    if "unreadable" in each:
        lost = Gap(str(each["unreadable"]))
        return GpuState(index, lost, lost, lost, lost, lost)
    uuid = each.get("uuid")
    return GpuState(
        index,
        uuid if isinstance(uuid, str) else why_not(uuid),
        number("utilization_percent"),
        number("power_mw", 1000),
        number("power_limit_mw", 1000),
        number("sm_mhz"),
    )
