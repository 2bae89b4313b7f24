"""An IOMMU that translates on bare metal can make PCIe copies between GPUs vanish while CUDA reports success."""

from __future__ import annotations

from collections.abc import Iterator

from preflight.judge.check import Case, NodeCheck
from preflight.judge.fabric import chosen_devices, is_bare_metal, pcie_pairs
from preflight.model.facts import NodeFacts, known
from preflight.model.finding import Blame, Evidence, Finding, Severity

TRANSLATING = frozenset({"DMA", "DMA-FQ"})


def judge(node: NodeFacts, case: Case) -> Iterator[Finding]:
    """Yield a WARN where chosen GPUs without NVLink between them are in translated groups on bare metal."""
    pairs = pcie_pairs(node, case)
    if not pairs or not is_bare_metal(node):
        return
    devices = chosen_devices(node, case)
    joined = [devices[gpu] for gpu in sorted({gpu for pair in pairs for gpu in pair}) if gpu in devices]
    translated = [device for device in joined if known(device.iommu_type) in TRANSLATING]
    if len(translated) < 2:
        return
    yield Finding(
        check=CHECK.name,
        blame=Blame.HOST,
        severity=Severity.WARN,
        subject=f"{node.host} IOMMU",
        problem="it translates for GPUs that reach each other over PCIe: their copies may be lost without an error",
        fix="add `iommu=pt` to the kernel's command line (or switch the IOMMU off in the firmware) and reboot; "
        "until then NCCL_P2P_LEVEL=NVL with NVLink, NCCL_P2P_DISABLE=1 without",
        evidence=tuple(
            Evidence(f"group type of {device.bdf}", known(device.iommu_type), "/sys/kernel/iommu_groups")
            for device in translated
        ),
    )


CHECK = NodeCheck(
    name="iommu-translates",
    promise="no IOMMU translates between chosen GPUs that only PCIe joins",
    blame=Blame.HOST,
    reads=("pci", "gpus", "gpu_paths", "system"),
    blind_to="whether data is really lost: only the verified copies of a trial show that",
    judge=judge,
)
