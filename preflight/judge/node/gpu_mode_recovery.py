from __future__ import annotations

from collections.abc import Iterator

from preflight.judge.check import Case, Findings, node_check
from preflight.judge.gpus_of_node import chosen_gpus, must_be_known, subject
from preflight.model.facts import Gap, Gpu, NodeFacts
from preflight.model.finding import Blame, Evidence, Severity, Unseen
from preflight.model.gpu import EXCLUSIVE, ComputeMode, Mode, RecoveryAction
from preflight.model.parts import part_of_gpu

COMPUTE = "nvmlDeviceGetComputeMode"


@node_check("gpu-mode", blame=Blame.CONFIGURATION, unseen=Unseen.NOTHING, reads=("gpus",))
def gpu_mode(node: NodeFacts, case: Case) -> Findings:
    """No chosen GPU is split into MIG instances or reserved by its compute mode.

    Yields a FAIL for MIG and for the compute mode `prohibited`. Yields a WARN for an exclusive compute mode.

    Can't see: a mode that changes after the probe.
    """
    # A GPU that is split into MIG instances has no peer access. A GPU with a restricted compute mode admits one process
    # or no process.
    gpus = chosen_gpus(node, case)
    for gpu in gpus:
        for severity, problem, fix, evidence in _modes(gpu):
            yield gpu_mode.finding(severity, subject(node, gpu), problem, fix, evidence)
    must_be_known(((gpu, value) for gpu in gpus for value in (gpu.mig_mode, gpu.compute_mode)), "MIG or compute mode")


def _modes(gpu: Gpu) -> Iterator[tuple[Severity, str, str, Evidence]]:
    smi = f"`nvidia-smi -i {gpu.nvml_index}"
    if gpu.mig_mode is Mode.ENABLED:
        problem = "MIG is on, but MIG instances have no peer access, and NCCL treats them as one GPU"
        fix = f"end the processes on the GPU and run {smi} -mig 0`, or choose other GPUs with --gpus"
        yield Severity.FAIL, problem, fix, Evidence("MIG mode", "enabled", "nvmlDeviceGetMigMode")
    if gpu.compute_mode is ComputeMode.PROHIBITED:
        fix = f"run {smi} -c DEFAULT`, or choose other GPUs with --gpus"
        yield (
            Severity.FAIL,
            "the compute mode of the GPU admits no process",
            fix,
            Evidence("compute mode", "prohibited", COMPUTE),
        )
    elif gpu.compute_mode in EXCLUSIVE:
        problem = "the compute mode of the GPU admits one process, so a second process fails at its start"
        fix = f"if another process (a monitor, a data loader) must use the GPU, run {smi} -c DEFAULT`"
        yield Severity.WARN, problem, fix, Evidence("compute mode", "exclusive", COMPUTE)


NEEDS = {
    RecoveryAction.GPU_RESET: "a GPU reset",
    RecoveryAction.NODE_REBOOT: "a node reboot",
    RecoveryAction.DRAIN_P2P: "the end of all jobs that use peer access",
    RecoveryAction.DRAIN_AND_RESET: "the end of all running jobs, then a GPU reset",
    RecoveryAction.RECOVER_IMEX_DOMAIN: "a restart of the IMEX domain",
    RecoveryAction.BUS_RESET: "a reset of the PCI bus",
    RecoveryAction.SYSTEM_REBOOT: "a system reboot",
}
RECOVERY_FIXES = {
    RecoveryAction.GPU_RESET: "drain the node, then run `nvidia-smi --gpu-reset -i N`",
    RecoveryAction.NODE_REBOOT: "drain the node and reboot it",
    RecoveryAction.DRAIN_P2P: "wait until all jobs that use peer access end, then rerun the check",
    RecoveryAction.DRAIN_AND_RESET: "wait until running jobs end, then run `nvidia-smi --gpu-reset -i N`",
    RecoveryAction.RECOVER_IMEX_DOMAIN: "restart nvidia-imex on every node of the domain",
    RecoveryAction.BUS_RESET: "drain the node and reset the PCI bus, or power-cycle it",
    RecoveryAction.SYSTEM_REBOOT: "drain the node and reboot it",
}


@node_check("gpu-recovery", blame=Blame.GPU, unseen=Unseen.ACCEPTANCE, reads=("gpus",))
def gpu_recovery(node: NodeFacts, case: Case) -> Findings:
    """The driver requests no reset, reboot or drain because of a chosen GPU.

    Yields a FAIL for each chosen GPU for which the driver requests an action.

    Can't see: requests of drivers before R570, which do not report them.
    """
    # The driver notices that a GPU needs recovery before a job does.
    gpus = chosen_gpus(node, case)
    for gpu in gpus:
        action = gpu.recovery_action
        if isinstance(action, Gap) or action is RecoveryAction.NONE:
            continue
        words = action.value.replace("_", " ")
        yield gpu_recovery.finding(
            Severity.FAIL,
            subject(node, gpu),
            f"the driver reports that the GPU needs {NEEDS[action]} to recover",
            RECOVERY_FIXES[action],
            Evidence("recovery action", words, "NVML field 230"),
            parts=part_of_gpu(node, gpu.nvml_index),
        )
    must_be_known(((gpu, gpu.recovery_action) for gpu in gpus), "recovery action")
