from __future__ import annotations

from preflight.errors import NotApplicable, UnreadableFact
from preflight.judge.check import Case, Findings, node_check
from preflight.judge.finding_text import first_named
from preflight.judge.pci_fabric import TRANSLATING, chosen_devices, must_be_bare_metal, p2p_workaround, pcie_pairs
from preflight.model.facts import NodeFacts, PciDevice, known
from preflight.model.finding import Blame, Evidence, Severity, Unseen
from preflight.model.repairs import ACS, IOMMU

REDIRECTING = frozenset({"ReqRedir", "CmpltRedir", "EgressCtrl"})
MOST_NAMED = 8


@node_check("acs-redirects", blame=Blame.HOST, unseen=Unseen.NOTHING, reads=("pci", "gpus", "gpu_paths", "system"))
def acs_redirects(node: NodeFacts, case: Case) -> Findings:
    """No bridge between the chosen GPUs redirects their traffic to the root complex.

    Yields a WARN if bridges send traffic between chosen GPUs through the root complex, which is slow or hangs.

    Can't see: bridges whose config space only root can read; the check is then inconclusive.
    """
    # On the way through the root complex, traffic is slow or hangs. The check does not apply in a virtual machine,
    # because ACS must stay on there.
    pairs = pcie_pairs(node, case)
    must_be_bare_metal(node)
    between = _bridges_between(node, case, pairs)
    if not between:
        raise NotApplicable("no PCIe switch lies between the chosen GPUs")
    redirecting = {
        bridge.bdf: bridge.acs for bridge in between if isinstance(bridge.acs, tuple) and REDIRECTING & {*bridge.acs}
    }
    if redirecting:
        yield acs_redirects.finding(
            Severity.WARN,
            f"{node.host} PCIe bridges {first_named([*redirecting], MOST_NAMED)}",
            "ACS sends copies between the chosen GPUs through the root complex, so these copies are slow or hang",
            ACS,
            Evidence("ACSCtl", ", ".join(next(iter(redirecting.values()))), "config space"),
            workaround=p2p_workaround(case),
        )
        return
    for bridge in between:
        known(bridge.acs)  # nothing was found, but a bridge that could not be read may redirect


def _bridges_between(node: NodeFacts, case: Case, pairs: list[tuple[int, int]]) -> list[PciDevice]:
    """Return the bridges between the two GPUs of each pair, if both GPUs are below the same root port."""
    devices, tree = chosen_devices(node, case), {device.bdf: device for device in known(node.pci)}
    found: dict[str, PciDevice] = {}
    for a, b in pairs:
        if a not in devices or b not in devices:
            continue
        ways = devices[a].parents, devices[b].parents
        if ways[0][:1] == ways[1][:1] != ():
            found |= {bdf: tree[bdf] for bdf in {*ways[0]} ^ {*ways[1]} if bdf in tree}
    return [found[bdf] for bdf in sorted(found)]


@node_check("iommu-translates", blame=Blame.HOST, unseen=Unseen.NOTHING, reads=("pci", "gpus", "gpu_paths", "system"))
def iommu_translates(node: NodeFacts, case: Case) -> Findings:
    """No IOMMU translates the copies between chosen GPUs that are connected by PCIe only.

    Yields a WARN on bare metal if at least two chosen GPUs without NVLink are in IOMMU groups that translate.

    Can't see: whether data is really lost. Only the verified copies of a trial show that.
    """
    # On bare metal, an IOMMU that translates addresses can lose PCIe copies between GPUs, although CUDA reports
    # success.
    pairs = pcie_pairs(node, case)
    must_be_bare_metal(node)
    devices = chosen_devices(node, case)
    joined = [devices[gpu] for gpu in sorted({gpu for pair in pairs for gpu in pair}) if gpu in devices]
    if len(joined) < 2:
        raise UnreadableFact("the chosen GPUs are not in the PCI tree")
    groups = {device.bdf: known(device.iommu_type) for device in joined}
    translated = {bdf: kind for bdf, kind in groups.items() if kind in TRANSLATING}
    if len(translated) < 2:
        return
    yield iommu_translates.finding(
        Severity.WARN,
        f"{node.host} IOMMU",
        "the IOMMU translates PCIe copies between these GPUs, so a copy may lose data without an error",
        IOMMU,
        *(Evidence(f"group type of {bdf}", kind, "/sys/kernel/iommu_groups") for bdf, kind in translated.items()),
        workaround=p2p_workaround(case),
    )
