from __future__ import annotations

from preflight.judge.check import Case, Findings, node_check
from preflight.judge.finding_text import fine_size
from preflight.judge.gpus_of_node import chosen_gpus, is_chosen, must_be_known, name_of, subject
from preflight.model.facts import Gap, NodeFacts, known_or
from preflight.model.finding import Blame, Evidence, Severity, Unseen
from preflight.model.hca import PortState


@node_check("bar1-small", blame=Blame.HOST, unseen=Unseen.NOTHING, reads=("gpus", "hca_ports"))
def bar1_small(node: NodeFacts, case: Case) -> Findings:
    """A chosen GPU's BAR1 is as large as on others of its model, and where RDMA is used shows its memory.

    NICs and PCIe peers reach a GPU's memory through its BAR1, and only as much of it as that shows. Yields a WARN where
    RDMA adapters are in use or others of the model show more, else nothing.

    GPUs of a desktop have a small BAR1 by nature, and NCCL goes through host memory there.

    Can't see: how much of it is taken.
    """
    gpus = chosen_gpus(node, case)
    has_rdma = any(port.state is PortState.ACTIVE for port in known_or(node.hca_ports, ()))
    for gpu in gpus:
        total, bar1 = gpu.memory_total_bytes, gpu.bar1_total_bytes
        if isinstance(total, Gap) or isinstance(bar1, Gap) or bar1 >= total // 2:
            continue
        largest = max(known_or(other.bar1_total_bytes, 0) for other in gpus if name_of(other) == name_of(gpu))
        if has_rdma or largest > bar1:
            others = f"; others of this model have {fine_size(largest)}" if largest > bar1 else ""
            yield bar1_small.finding(
                Severity.WARN,
                subject(node, gpu),
                f"BAR1 shows {fine_size(bar1)} of {fine_size(total)} memory to NICs and PCIe peers{others}",
                "switch on `Above 4G Decoding` and `Resizable BAR` in the firmware; in a virtual machine give it a "
                "large 64-bit PCI window",
                Evidence("BAR1", fine_size(bar1), "nvmlDeviceGetBAR1MemoryInfo"),
            )
    must_be_known(((gpu, gpu.bar1_total_bytes) for gpu in gpus if is_chosen(gpu.nvml_index, case)), "BAR1")


@node_check("pcie-width", blame=Blame.HOST, unseen=Unseen.NOTHING, reads=("gpus",))
def pcie_width(node: NodeFacts, case: Case) -> Findings:
    """Every chosen GPU has all PCIe lanes that it can use.

    A GPU on fewer PCIe lanes than it could have moves data at that share of its speed. Yields a WARN for each chosen
    GPU whose link is narrower than its maximum; idle GPUs keep their width.

    Can't see: the generation, which falls while a GPU idles, and links further up the PCI tree.
    """
    gpus = chosen_gpus(node, case)
    for gpu in gpus:
        if isinstance(gpu.pcie, Gap) or not isinstance(gpu.pcie.width, int) or not isinstance(gpu.pcie.width_max, int):
            continue
        width, most = gpu.pcie.width, gpu.pcie.width_max
        if 0 < width < most:
            yield pcie_width.finding(
                Severity.WARN,
                subject(node, gpu),
                f"PCIe x{width}, of x{most} that the GPU can use: {width / most:.0%} of the speed",
                "reseat the card and its riser; if two slots share lanes, the board's manual says which slot has all "
                "of them",
                Evidence("width", f"x{width}", "nvmlDeviceGetCurrPcieLinkWidth"),
                Evidence("most", f"x{most}", "nvmlDeviceGetMaxPcieLinkWidth"),
            )
    links = [(gpu, gpu.pcie) for gpu in gpus if isinstance(gpu.pcie, Gap)]
    widths = [
        (gpu, value) for gpu in gpus if not isinstance(gpu.pcie, Gap) for value in (gpu.pcie.width, gpu.pcie.width_max)
    ]
    must_be_known([*links, *widths], "PCIe link")
