"""A GPU on fewer PCIe lanes than it could have moves data at that share of its speed."""

from __future__ import annotations

from collections.abc import Iterator

from preflight.judge.check import Case, NodeCheck
from preflight.judge.chosen import chosen_gpus, must_be_known, subject
from preflight.model.facts import Gap, NodeFacts
from preflight.model.finding import Blame, Evidence, Finding, Severity


def judge(node: NodeFacts, case: Case) -> Iterator[Finding]:
    """Yield a WARN for each chosen GPU whose link is narrower than its maximum; idle GPUs keep their width."""
    gpus = chosen_gpus(node, case)
    for gpu in gpus:
        if isinstance(gpu.pcie, Gap) or not isinstance(gpu.pcie.width, int) or not isinstance(gpu.pcie.width_max, int):
            continue
        width, most = gpu.pcie.width, gpu.pcie.width_max
        if 0 < width < most:
            yield Finding(
                check=CHECK.name,
                blame=CHECK.blame,
                severity=Severity.WARN,
                subject=subject(node, gpu),
                problem=f"PCIe x{width}, of x{most} that the GPU can use: {width / most:.0%} of the speed",
                fix="reseat the card and its riser; where two slots share the lanes, the board's manual says which "
                "slot has all of them",
                evidence=(
                    Evidence("width", f"x{width}", "nvmlDeviceGetCurrPcieLinkWidth"),
                    Evidence("most", f"x{most}", "nvmlDeviceGetMaxPcieLinkWidth"),
                ),
            )
    must_be_known(((gpu, gpu.pcie) for gpu in gpus), "PCIe link")


CHECK = NodeCheck(
    name="pcie-width",
    promise="every chosen GPU has all PCIe lanes that it can use",
    blame=Blame.HOST,
    reads=("gpus",),
    blind_to="the generation, which falls while a GPU idles, and links further up the PCI tree",
    judge=judge,
)
