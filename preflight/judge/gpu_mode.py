"""A GPU cut into instances has no peer access, and one that is reserved lets in one process or none."""

from __future__ import annotations

from collections.abc import Iterator

from preflight.judge.check import Case, NodeCheck
from preflight.judge.chosen import chosen_gpus, must_be_known, subject
from preflight.model.facts import Gpu, NodeFacts
from preflight.model.finding import Blame, Evidence, Finding, Severity
from preflight.model.gpu import ComputeMode, Mode

COMPUTE = "nvmlDeviceGetComputeMode"
EXCLUSIVE = (ComputeMode.EXCLUSIVE_PROCESS, ComputeMode.EXCLUSIVE_THREAD)


def judge(node: NodeFacts, case: Case) -> Iterator[Finding]:
    """Yield a FAIL for MIG and for prohibited, a WARN for exclusive."""
    gpus = chosen_gpus(node, case)
    for gpu in gpus:
        yield from _judge(node, gpu)
    must_be_known(((gpu, value) for gpu in gpus for value in (gpu.mig_mode, gpu.compute_mode)), "mode")


def _judge(node: NodeFacts, gpu: Gpu) -> Iterator[Finding]:
    if gpu.mig_mode is Mode.ENABLED:
        yield _finding(
            node, gpu, Severity.FAIL, "MIG is on: its instances have no peer access and NCCL takes them for one GPU",
            "`nvidia-smi -i N -mig 0` (nobody may use it meanwhile), or choose other GPUs with --gpus",
            Evidence("MIG mode", "enabled", "nvmlDeviceGetMigMode"),
        )  # fmt: skip
    if gpu.compute_mode is ComputeMode.PROHIBITED:
        yield _finding(
            node, gpu, Severity.FAIL, "its compute mode lets no process in",
            "`nvidia-smi -i N -c DEFAULT`, or choose other GPUs with --gpus",
            Evidence("compute mode", "prohibited", COMPUTE),
        )  # fmt: skip
    elif gpu.compute_mode in EXCLUSIVE:
        yield _finding(
            node, gpu, Severity.WARN, "its compute mode lets one process in: a second one on it fails at its start",
            "`nvidia-smi -i N -c DEFAULT` where anything else (a monitor, a data loader) has to use it",
            Evidence("compute mode", "exclusive", COMPUTE),
        )  # fmt: skip


def _finding(node: NodeFacts, gpu: Gpu, severity: Severity, problem: str, fix: str, evidence: Evidence) -> Finding:
    fix = fix.replace("-i N", f"-i {gpu.nvml_index}")
    return Finding(CHECK.name, CHECK.blame, severity, subject(node, gpu), problem, fix, (evidence,))


CHECK = NodeCheck(
    name="gpu-mode",
    promise="no chosen GPU is cut into instances or reserved",
    blame=Blame.CONFIGURATION,
    reads=("gpus",),
    blind_to="a mode that changes after the probe",
    judge=judge,
)
