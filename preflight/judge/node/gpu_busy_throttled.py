from __future__ import annotations

from preflight.judge.check import Case, Findings, node_check
from preflight.judge.finding_text import fine_size
from preflight.judge.gpus_of_node import (
    CONTEXT_BYTES,
    IDLE_PERCENT,
    SLOWED_BY,
    SLOWED_BY_HARDWARE,
    chosen_gpus,
    is_busy,
    must_be_known,
    subject,
)
from preflight.model.facts import Gap, NodeFacts, known_or
from preflight.model.finding import Blame, Evidence, Severity, Unseen
from preflight.model.gpu import GpuProcess
from preflight.model.parts import part_of_gpu


@node_check(
    "gpu-busy",
    blame=Blame.APPLICATION,
    unseen=Unseen.NOTHING,
    reads=("gpus",),
    bounds=(IDLE_PERCENT, CONTEXT_BYTES),
)
def gpu_busy(node: NodeFacts, case: Case) -> Findings:
    """No other process uses the chosen GPUs.

    Yields a WARN for each chosen GPU that was in use before preflight used any GPU.

    Can't see: processes that a container hides, and work that starts after the probe.
    """
    # If another job uses a GPU, every measured speed depends on both jobs. A GPU was in use if a process was on the
    # GPU, or if the GPU was computing and had memory in use.
    gpus = chosen_gpus(node, case)
    for gpu in gpus:
        if is_busy(gpu):
            processes = known_or(gpu.processes, ())
            users = ", ".join(_process_text(process) for process in processes) or "NVML shows no process"
            load = known_or(gpu.utilization_percent, "?")
            yield gpu_busy.finding(
                Severity.WARN,
                subject(node, gpu),
                f"the GPU was in use before preflight started ({users}; {load}% busy), so speeds were not tested",
                _busy_fix(processes),
                Evidence("processes on the GPU", users, "nvmlDeviceGetComputeRunningProcesses"),
                Evidence("GPU utilization", f"{load}%", "nvmlDeviceGetUtilizationRates"),
            )
    must_be_known(((gpu, gpu.processes) for gpu in gpus), "processes")


def _busy_fix(processes: tuple[GpuProcess, ...]) -> str:
    mine = " ".join(str(process.pid) for process in processes if process.is_ours is True)
    if mine and all(process.is_ours is True for process in processes):
        return f"end your leftover processes with `kill {mine}`, wait until they end, or choose free GPUs with --gpus"
    pids = ", ".join(str(process.pid) for process in processes)
    if len(processes) > 1:
        return f"ask the owners to end processes {pids}, wait until the processes end, or choose free GPUs with --gpus"
    who = f"ask the owner to end process {pids}" if pids else (
        "run `nvidia-smi` (in a container: on the host) to find the process that uses the GPU"
    )  # fmt: skip
    return f"{who}, wait until the process ends, or choose free GPUs with --gpus"


def _process_text(process: GpuProcess) -> str:
    name = "" if isinstance(process.name, Gap) else f" {process.name}"
    owner = "yours" if process.is_ours is True else f"uid {process.uid}"
    whose = "" if isinstance(process.uid, Gap) else f" of {owner}"
    memory = "" if isinstance(process.used_bytes, Gap) else f", {fine_size(process.used_bytes)}"
    return f"pid {process.pid}{name}{whose}{memory}"


ON_BATTERY = {"hw_slowdown", "hw_power_brake_slowdown"}  # a laptop whose battery or adapter can't give more
LAPTOP = "connect this laptop's own power adapter"
SERVER = "check the fans, the air or water flow and the power supplies in the BMC"


@node_check("gpu-throttled", blame=Blame.HOST, unseen=Unseen.ACCEPTANCE, reads=("gpus",))
def gpu_throttled(node: NodeFacts, case: Case) -> Findings:
    """No chosen GPU is slowed down by heat or by its power supply.

    Yields a FAIL if the hardware slows a chosen GPU down. Yields a WARN if the driver slows the GPU down because of
    heat, or because of a laptop's power supply.

    Can't see: throttling under load, because the probe examines an idle GPU.
    """
    # A slow GPU delays all other GPUs. Reduced clocks are normal if the GPU is idle or at its power cap.
    gpus = chosen_gpus(node, case)
    for gpu in gpus:
        reasons = known_or(gpu.throttle_reasons, ())
        causes = [SLOWED_BY[reason] for reason in reasons if reason in SLOWED_BY]
        if causes:
            heat = "?" if isinstance(gpu.temperature_c, Gap) else f"{gpu.temperature_c} °C"
            on_battery = ON_BATTERY.issuperset(SLOWED_BY_HARDWARE & {*reasons}) and "laptop" in str(gpu.name).lower()
            yield gpu_throttled.finding(
                Severity.WARN if on_battery or SLOWED_BY_HARDWARE.isdisjoint(reasons) else Severity.FAIL,
                subject(node, gpu),
                f"the GPU runs slower than requested because {' and '.join(causes)} ({heat})",
                f"{LAPTOP if on_battery else SERVER}. `nvidia-smi -q -d PERFORMANCE` shows whether the GPU is still "
                f"throttled",
                Evidence("throttle reasons", ", ".join(reasons), "nvmlDeviceGetCurrentClocksEventReasons"),
                Evidence("temperature", heat, "nvmlDeviceGetTemperature"),
                parts=part_of_gpu(node, gpu.nvml_index),
            )
    must_be_known(((gpu, gpu.throttle_reasons) for gpu in gpus), "throttle reasons")
