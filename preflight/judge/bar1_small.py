"""NICs and PCIe peers reach a GPU's memory through its BAR1, and only as much of it as that shows."""

from __future__ import annotations

from collections.abc import Iterator

from preflight.judge.check import Case, NodeCheck
from preflight.judge.chosen import chosen_gpus, is_chosen, must_be_known, name_of, subject
from preflight.judge.wording import size_text
from preflight.model.facts import Gap, Gpu, NodeFacts
from preflight.model.finding import Blame, Evidence, Finding, Severity
from preflight.model.hca import PortState


def judge(node: NodeFacts, case: Case) -> Iterator[Finding]:
    """Yield a WARN where RDMA adapters are in use or others of the model show more, else nothing.

    GPUs of a desktop have a small BAR1 by nature, and NCCL goes through host memory there.
    """
    gpus = chosen_gpus(node, case)
    has_rdma = not isinstance(node.hca_ports, Gap) and any(p.state is PortState.ACTIVE for p in node.hca_ports)
    for gpu in gpus:
        total, bar1 = gpu.memory_total_bytes, gpu.bar1_total_bytes
        if isinstance(total, Gap) or isinstance(bar1, Gap) or bar1 >= total // 2:
            continue
        largest = max(_bar1(other) for other in gpus if name_of(other) == name_of(gpu))
        if has_rdma or largest > bar1:
            yield _finding(node, gpu, bar1, total, largest)
    must_be_known(((gpu, gpu.bar1_total_bytes) for gpu in gpus if is_chosen(gpu.nvml_index, case)), "BAR1")


def _bar1(gpu: Gpu) -> int:
    return 0 if isinstance(gpu.bar1_total_bytes, Gap) else gpu.bar1_total_bytes


def _finding(node: NodeFacts, gpu: Gpu, bar1: int, total: int, largest: int) -> Finding:
    others = f"; others of this model have {size_text(largest)}" if largest > bar1 else ""
    return Finding(
        check=CHECK.name,
        blame=CHECK.blame,
        severity=Severity.WARN,
        subject=subject(node, gpu),
        problem=f"BAR1 shows {size_text(bar1)} of {size_text(total)} memory to NICs and PCIe peers{others}",
        fix="switch on `Above 4G Decoding` and `Resizable BAR` in the firmware; in a virtual machine give it a large "
        "64-bit PCI window",
        evidence=(Evidence("BAR1", size_text(bar1), "nvmlDeviceGetBAR1MemoryInfo"),),
    )


CHECK = NodeCheck(
    name="bar1-small",
    promise="a chosen GPU's BAR1 is as large as on others of its model, and where RDMA is used shows its memory",
    blame=Blame.HOST,
    reads=("gpus", "hca_ports"),
    blind_to="how much of it is taken",
    judge=judge,
)
