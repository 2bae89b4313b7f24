"""ACS on the bridges between GPUs sends their traffic up through the root complex, where it is slow or hangs."""

from __future__ import annotations

from collections.abc import Iterator

from preflight.judge.check import Case, NodeCheck
from preflight.judge.fabric import chosen_devices, is_bare_metal, pcie_pairs
from preflight.model.facts import Gap, NodeFacts, PciDevice, known
from preflight.model.finding import Blame, Evidence, Finding, Severity

REDIRECTING = frozenset({"ReqRedir", "CmpltRedir", "EgressCtrl"})
MOST_NAMED = 8


def judge(node: NodeFacts, case: Case) -> Iterator[Finding]:
    """Yield a WARN for the bridges that redirect between chosen GPUs; in a virtual machine ACS must stay on."""
    pairs = pcie_pairs(node, case)
    if not pairs or not is_bare_metal(node):
        return
    between = _bridges_between(node, case, pairs)
    redirecting = [bridge for bridge in between if isinstance(bridge.acs, tuple) and REDIRECTING & {*bridge.acs}]
    if redirecting:
        yield _finding(node, redirecting)
        return
    for bridge in between:
        known(bridge.acs)  # nothing was found, but a bridge that could not be read may redirect


def _bridges_between(node: NodeFacts, case: Case, pairs: list[tuple[int, int]]) -> list[PciDevice]:
    """Return the bridges on the ways between two GPUs that meet below a root port."""
    devices, tree = chosen_devices(node, case), {device.bdf: device for device in known(node.pci)}
    found: dict[str, PciDevice] = {}
    for a, b in pairs:
        if a not in devices or b not in devices:
            continue
        ways = devices[a].parents, devices[b].parents
        if ways[0][:1] == ways[1][:1] != ():
            found |= {bdf: tree[bdf] for bdf in {*ways[0]} ^ {*ways[1]} if bdf in tree}
    return [found[bdf] for bdf in sorted(found)]


def _finding(node: NodeFacts, bridges: list[PciDevice]) -> Finding:
    named = ", ".join(bridge.bdf for bridge in bridges[:MOST_NAMED])
    more = f" and {len(bridges) - MOST_NAMED} more" if len(bridges) > MOST_NAMED else ""
    acs = bridges[0].acs
    return Finding(
        check=CHECK.name,
        blame=Blame.HOST,
        severity=Severity.WARN,
        subject=f"{node.host} PCIe bridges {named}{more}",
        problem="ACS sends what the chosen GPUs write to each other up through the root complex: slow, or a hang",
        fix="switch ACS off in the firmware, or `setpci -s BRIDGE ECAP_ACS+6.w=0` on each bridge after every boot; "
        "until then NCCL_P2P_LEVEL=NVL with NVLink, NCCL_P2P_DISABLE=1 without",
        evidence=(Evidence("ACSCtl", ", ".join(acs) if not isinstance(acs, Gap) else "", "config space"),),
    )


CHECK = NodeCheck(
    name="acs-redirects",
    promise="no bridge between the chosen GPUs redirects their traffic to the root complex",
    blame=Blame.HOST,
    reads=("pci", "gpus", "gpu_paths", "system"),
    blind_to="bridges whose config space only root can read; then it is skipped and says so",
    judge=judge,
)
