from __future__ import annotations

from collections import defaultdict

from preflight.errors import NotApplicable, UnreadableFact
from preflight.judge.check import Case, Findings, node_check
from preflight.judge.gpus_of_node import chosen_gpus, is_chosen, pairs_called
from preflight.model.facts import Gap, NodeFacts, known
from preflight.model.finding import Blame, Evidence, Severity, Unseen
from preflight.model.gap import NOT_OFFERED
from preflight.model.gpu import GpuP2p, Mode, P2pStatus
from preflight.model.parsing import version_tuple
from preflight.model.repairs import FABRIC_MANAGER

# What these GPUs can't do is not broken; a GeForce without peer access is healthy.
BY_NATURE = (P2pStatus.OK, P2pStatus.GPU_NOT_SUPPORTED, P2pStatus.NOT_SUPPORTED)
FIXES = {
    P2pStatus.DISABLED_BY_REGKEY: "run `grep -r NVreg /etc/modprobe.d` to find the option that switches P2P off. "
    "Remove the option, rebuild the initramfs and reboot",
    P2pStatus.CHIPSET_NOT_SUPPORTED: "no repair is needed: NCCL copies through host memory. In a virtual machine, ask "
    "the provider for peer access (ACS and topology of the host)",
    P2pStatus.TOPOLOGY_NOT_SUPPORTED: "choose GPUs of one socket or switch with --gpus; no repair is needed",
}
RIGHT_SINCE = (535, 183, 6)  # before, the driver refused on NVSwitch machines what it then allowed
OVER_NVLINK = (
    f"{FABRIC_MANAGER}; drivers before 535.183.06 report this wrongly on NVSwitch machines, so check with `nvidia-smi "
    f"topo -p2p r`"
)

CONFIDENTIAL = (
    "no repair is needed: confidential computing is on and allows no peer access. On HGX boards, use its protected "
    "PCIe mode for peer access between all GPUs of one virtual machine (`nvidia-smi conf-compute -q` shows the mode)"
)


@node_check("p2p-refused", blame=Blame.HOST, unseen=Unseen.NOTHING, reads=("gpus", "gpu_paths", "gpu_p2p"))
def p2p_refused(node: NodeFacts, case: Case) -> Findings:
    """The driver allows peer access between all chosen GPUs that support it.

    Yields one problem for each reason for which the driver refuses peer access. The problem is a FAIL if NVLinks
    connect the GPUs and the driver gives a reason.

    Can't see: whether data arrives. The driver reports OK even if an IOMMU drops the data; the trials show that.
    """
    # Without peer access, all data between two GPUs goes through the host's memory. MIG and confidential computing
    # exclude peer access by design.
    if len(chosen_gpus(node, case)) < 2:
        raise NotApplicable("no two GPUs are to be used")
    linked = {(path.a, path.b) for path in known(node.gpu_paths) if str(path.level).startswith("NV")}
    pairs = [p2p for p2p in known(node.gpu_p2p) if is_chosen(p2p.a, case) and is_chosen(p2p.b, case)]
    cut = {gpu.nvml_index for gpu in known(node.gpus) if gpu.mig_mode is Mode.ENABLED}
    refused: dict[tuple[P2pStatus, bool], list[GpuP2p]] = defaultdict(list)
    for pair in pairs:
        over_nvlink = (pair.a, pair.b) in linked
        if {pair.a, pair.b} & cut:
            continue
        for status in {pair.read, pair.write} - {P2pStatus.OK}:
            if isinstance(status, P2pStatus) and (over_nvlink or status not in BY_NATURE):
                refused[status, over_nvlink].append(pair)
    for (status, over_nvlink), concerned in refused.items():
        words = status.value.replace("_", " ")
        repairable = over_nvlink or status is P2pStatus.DISABLED_BY_REGKEY
        severity = Severity.WARN if repairable else Severity.INFO
        if over_nvlink and status is not P2pStatus.UNKNOWN and _is_right(node):
            severity = Severity.FAIL
        fix = OVER_NVLINK if over_nvlink else FIXES.get(status, "run `nvidia-smi topo -p2p r`, then update the driver")
        if _is_confidential(node):
            severity, fix = Severity.INFO, CONFIDENTIAL
        yield p2p_refused.finding(
            severity,
            pairs_called(node, [(pair.a, pair.b) for pair in concerned]),
            f"the driver refuses peer access{' although NVLinks join them' if over_nvlink else ''}: {words}",
            fix,
            Evidence("P2P status", words, "nvmlDeviceGetP2PStatus"),
        )
    for pair in pairs:
        if isinstance(pair.read, Gap) and not pair.read.reason.startswith(NOT_OFFERED):
            raise UnreadableFact(f"peer access could not be read: {pair.read.reason}")
    if all(isinstance(pair.read, Gap) for pair in pairs):
        raise NotApplicable("the driver does not report peer access between these GPUs")


def _is_confidential(node: NodeFacts) -> bool:
    return not isinstance(node.driver, Gap) and node.driver.is_confidential is True


def _is_right(node: NodeFacts) -> bool:
    """Return whether this driver reports peer access correctly for GPUs that NVLink connects."""
    version = None if isinstance(node.driver, Gap) else node.driver.version
    return isinstance(version, str) and version_tuple(version) >= RIGHT_SINCE
