"""The driver knows when a GPU needs a reset or its node a reboot, and says so to who asks."""

from __future__ import annotations

from collections.abc import Iterator

from preflight.judge.check import Case, NodeCheck
from preflight.judge.chosen import chosen_gpus, must_be_known, subject
from preflight.model.facts import Gap, NodeFacts
from preflight.model.finding import Blame, Evidence, Finding, Severity
from preflight.model.gpu import RecoveryAction

FIXES = {
    RecoveryAction.GPU_RESET: "drain the node, then `nvidia-smi --gpu-reset -i N`",
    RecoveryAction.NODE_REBOOT: "drain the node and reboot it",
    RecoveryAction.DRAIN_P2P: "let jobs that use peer access end, then look again",
    RecoveryAction.DRAIN_AND_RESET: "let running jobs end, then `nvidia-smi --gpu-reset -i N`",
    RecoveryAction.RECOVER_IMEX_DOMAIN: "restart nvidia-imex on every node of the domain",
    RecoveryAction.BUS_RESET: "drain the node and reset the PCI bus, or power-cycle it",
    RecoveryAction.SYSTEM_REBOOT: "drain the node and reboot it",
}


def judge(node: NodeFacts, case: Case) -> Iterator[Finding]:
    """Yield a FAIL for each chosen GPU for which the driver asks for any action."""
    gpus = chosen_gpus(node, case)
    for gpu in gpus:
        action = gpu.recovery_action
        if isinstance(action, Gap) or action is RecoveryAction.NONE:
            continue
        words = action.value.replace("_", " ")
        yield Finding(
            check=CHECK.name,
            blame=CHECK.blame,
            severity=Severity.FAIL,
            subject=subject(node, gpu),
            problem=f"the driver asks for recovery: {words}",
            fix=FIXES[action],
            evidence=(Evidence("recovery action", words, "NVML field 230"),),
        )
    must_be_known(((gpu, gpu.recovery_action) for gpu in gpus), "recovery action")


CHECK = NodeCheck(
    name="gpu-recovery",
    promise="the driver asks for no reset, reboot or drain on account of a chosen GPU",
    blame=Blame.GPU,
    reads=("gpus",),
    blind_to="drivers that don't know the question (before R570)",
    judge=judge,
)
