from __future__ import annotations

from preflight.judge.check import Case, Findings, node_check
from preflight.judge.finding_text import fine_size
from preflight.judge.gpus_of_node import chosen_gpus, is_chosen, must_be_known, name_of, subject
from preflight.model.facts import Gap, NodeFacts, known_or
from preflight.model.finding import Blame, Evidence, Severity, Unseen
from preflight.model.hca import PortState


@node_check("bar1-small", blame=Blame.HOST, unseen=Unseen.NOTHING, reads=("gpus", "hca_ports"))
def bar1_small(node: NodeFacts, case: Case) -> Findings:
    """Each chosen GPU's BAR1 covers at least half of the memory, if RDMA needs this or an equal GPU has more.

    Yields a WARN for a smaller BAR1 if an RDMA port is active, or if another GPU of the model has a larger BAR1.

    Can't see: how much of the BAR1 is in use.
    """
    # NICs and PCIe peers can reach only the part of a GPU's memory that the BAR1 covers. Desktop GPUs have a small BAR1
    # by design, and NCCL uses host memory for these GPUs.
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
                "switch on `Above 4G Decoding` and `Resizable BAR` in the firmware. In a virtual machine, set a large "
                "64-bit PCI window",
                Evidence("BAR1", fine_size(bar1), "nvmlDeviceGetBAR1MemoryInfo"),
            )
    must_be_known(((gpu, gpu.bar1_total_bytes) for gpu in gpus if is_chosen(gpu.nvml_index, case)), "BAR1")


@node_check("pcie-width", blame=Blame.HOST, unseen=Unseen.NOTHING, reads=("gpus",))
def pcie_width(node: NodeFacts, case: Case) -> Findings:
    """Every chosen GPU has all PCIe lanes that it can use.

    Yields a WARN for each chosen GPU if its link is narrower than the link's maximum width.

    Can't see: the PCIe generation, which drops while a GPU is idle, and links further up the PCI tree.
    """
    # A GPU with a part of its PCIe lanes moves data at that part of its speed. Idle GPUs keep their width.
    gpus = chosen_gpus(node, case)
    for gpu in gpus:
        if isinstance(gpu.pcie, Gap) or not isinstance(gpu.pcie.width, int) or not isinstance(gpu.pcie.width_max, int):
            continue
        width, most = gpu.pcie.width, gpu.pcie.width_max
        if 0 < width < most:
            yield pcie_width.finding(
                Severity.WARN,
                subject(node, gpu),
                f"the GPU uses PCIe x{width} but supports x{most}, so it has {width / most:.0%} of the lanes",
                "power the node off and on. If the width stays low, reseat the card and its riser (the vendor does "
                "this for an SXM module). If two slots share lanes, use the slot with all lanes that the board's "
                "manual names",
                Evidence("PCIe lanes in use", f"x{width}", "nvmlDeviceGetCurrPcieLinkWidth"),
                Evidence("PCIe lanes at most", f"x{most}", "nvmlDeviceGetMaxPcieLinkWidth"),
            )
    links = [(gpu, gpu.pcie) for gpu in gpus if isinstance(gpu.pcie, Gap)]
    widths = [
        (gpu, value) for gpu in gpus if not isinstance(gpu.pcie, Gap) for value in (gpu.pcie.width, gpu.pcie.width_max)
    ]
    must_be_known([*links, *widths], "PCIe link")
