"""Another job on a GPU makes every speed that is measured on it a number about both."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from preflight.judge.check import Case, NodeCheck
from preflight.judge.chosen import chosen_gpus, must_be_known, subject
from preflight.judge.wording import size_text
from preflight.model.facts import Gap, Gpu, NodeFacts
from preflight.model.finding import Blame, Evidence, Finding, Severity
from preflight.model.gpu import GpuProcess

IDLE_PERCENT = 5  # one sample of an idle GPU may show a few percent


def judge(node: NodeFacts, case: Case) -> Iterator[Finding]:
    """Yield a WARN for each chosen GPU on which a process was, or that computed, before preflight used any."""
    gpus = chosen_gpus(node, case)
    for gpu in gpus:
        if is_busy(gpu):
            yield _finding(node, gpu)
    must_be_known(((gpu, gpu.processes) for gpu in gpus), "processes")


def is_busy(gpu: Gpu) -> bool:
    """Tell whether somebody used the GPU when it was probed."""
    has_processes = not isinstance(gpu.processes, Gap) and bool(gpu.processes)
    computes = not isinstance(gpu.utilization_percent, Gap) and gpu.utilization_percent > IDLE_PERCENT
    return has_processes or computes


def why_disturbed(gpus: Sequence[Gpu]) -> str:
    """Return why no speed measured on these GPUs is theirs alone, "" where nobody else used them."""
    busy = ", ".join(str(gpu.nvml_index) for gpu in gpus if is_busy(gpu))
    return f"GPU {busy} was in use by somebody else" if busy else ""


def _finding(node: NodeFacts, gpu: Gpu) -> Finding:
    processes = () if isinstance(gpu.processes, Gap) else gpu.processes
    told = ", ".join(_told(process) for process in processes) or "no process that NVML shows"
    load = "?" if isinstance(gpu.utilization_percent, Gap) else str(gpu.utilization_percent)
    return Finding(
        check=CHECK.name,
        blame=CHECK.blame,
        severity=Severity.WARN,
        subject=subject(node, gpu),
        problem=f"in use before preflight started ({told}; {load} % busy): no speed is judged",
        fix=_fix(processes),
        evidence=(
            Evidence("processes", told, "nvmlDeviceGetComputeRunningProcesses"),
            Evidence("utilisation", f"{load} %", "nvmlDeviceGetUtilizationRates"),
        ),
    )


def _fix(processes: tuple[GpuProcess, ...]) -> str:
    mine = " ".join(str(process.pid) for process in processes if process.is_ours is True)
    if mine and all(process.is_ours is True for process in processes):
        return f"end what is left of yours (`kill {mine}`), wait for it, or choose free GPUs with --gpus"
    who = "ask whose it is" if processes else "find who uses it (`nvidia-smi`, in a container ask the host)"
    return f"{who}, wait until it ends, or choose free GPUs with --gpus"


def _told(process: GpuProcess) -> str:
    name = "" if isinstance(process.name, Gap) else f" {process.name}"
    whose = (
        "" if isinstance(process.uid, Gap) else (" of yours" if process.is_ours is True else f" of uid {process.uid}")
    )
    memory = "" if isinstance(process.used_bytes, Gap) else f", {size_text(process.used_bytes)}"
    return f"pid {process.pid}{name}{whose}{memory}"


CHECK = NodeCheck(
    name="gpu-busy",
    promise="nobody else uses the chosen GPUs",
    blame=Blame.APPLICATION,
    reads=("gpus",),
    blind_to="processes that a container hides, and work that starts after the probe",
    judge=judge,
)
