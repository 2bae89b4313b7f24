"""On an NVSwitch machine no GPU computes before the Fabric Manager has registered it: CUDA gives error 802."""

from __future__ import annotations

from collections.abc import Iterator

from preflight.judge.check import Case, NodeCheck
from preflight.judge.chosen import chosen_gpus, must_be_known, subject
from preflight.judge.nvlink_down import has_switch
from preflight.model.facts import Gap, Gpu, NodeFacts
from preflight.model.finding import Blame, Evidence, Finding, Severity
from preflight.model.gpu import Fabric, FabricState

SOURCE = "nvmlDeviceGetGpuFabricInfoV"
FIX = (
    "`systemctl status nvidia-fabricmanager` and its log /var/log/fabricmanager.log; its version must be the driver's; "
    "NVLink 5 boards need nvlsm and ib_umad as well"
)


def judge(node: NodeFacts, case: Case) -> Iterator[Finding]:
    """Yield a FAIL where registration is not completed or failed, a WARN where the fabric calls itself unhealthy."""
    gpus = chosen_gpus(node, case)
    if isinstance(node.gpus, Gap) or not any(has_switch(gpu) for gpu in node.gpus):
        return
    for gpu in gpus:
        if not isinstance(gpu.fabric, Gap):
            yield from _judge(node, gpu, gpu.fabric)
    must_be_known(((gpu, gpu.fabric) for gpu in gpus), "fabric state")


def _judge(node: NodeFacts, gpu: Gpu, fabric: Fabric) -> Iterator[Finding]:
    failed = "" if isinstance(fabric.problem, Gap) else fabric.problem
    faults = () if isinstance(fabric.health, Gap) else fabric.health
    state = fabric.state.value.replace("_", " ")
    if fabric.state in (FabricState.NOT_STARTED, FabricState.IN_PROGRESS):
        told = "has not begun" if fabric.state is FabricState.NOT_STARTED else "is still in progress"
        yield _finding(node, gpu, Severity.FAIL, f"registration with the NVSwitch fabric {told}", state)
    elif fabric.state is FabricState.COMPLETED and failed:
        yield _finding(node, gpu, Severity.FAIL, f"registration with the NVSwitch fabric failed: {failed}", failed)
    elif faults:
        words = ", ".join(faults).replace("_", " ")
        yield _finding(node, gpu, Severity.WARN, f"the NVSwitch fabric is not healthy: {words}", words)


def _finding(node: NodeFacts, gpu: Gpu, severity: Severity, problem: str, seen: str) -> Finding:
    evidence = (Evidence("fabric", seen, SOURCE),)
    return Finding(CHECK.name, CHECK.blame, severity, subject(node, gpu), problem, FIX, evidence)


CHECK = NodeCheck(
    name="fabric-state",
    promise="on an NVSwitch machine every chosen GPU is registered with the fabric",
    blame=Blame.FABRIC,
    reads=("gpus",),
    blind_to="GPUs before Hopper, whose driver does not tell",
    judge=judge,
)
