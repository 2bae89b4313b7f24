"""What was read of the PCI tree: the GPUs, the RDMA adapters, and the bridges above them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from preflight.model.gap import Gap


class PciKind(Enum):
    """What a device is, bridges by their place: the types in config space need root."""

    GPU = "gpu"
    NIC = "nic"
    ROOT_PORT = "root_port"
    SWITCH_UPSTREAM = "switch_upstream"
    SWITCH_DOWNSTREAM = "switch_downstream"


@dataclass(frozen=True, slots=True)
class PciDevice:
    """A PCI function and the bridges that lead to it."""

    bdf: str
    kind: PciKind
    device: str | Gap  # vendor and device, "10de:2330"
    host_bridge: str  # "pci0000:16": what hangs on one of these shares a root complex
    parents: tuple[str, ...]  # bdf of the bridges from the root port down to this device
    numa_node: int | Gap
    speed_gt_s: float | Gap  # falls while the link is idle
    speed_max_gt_s: float | Gap
    width: int | Gap
    width_max: int | Gap
    acs: tuple[str, ...] | Gap  # ACS controls that are on, in lspci's words; none where it has no ACS
    iommu_group: str | Gap  # "" where no IOMMU is active
    iommu_type: str | Gap  # identity, DMA, DMA-FQ; "" where no IOMMU is active
