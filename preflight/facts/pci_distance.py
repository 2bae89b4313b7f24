"""Compute the distance between two PCI devices, in the terms of `nvidia-smi topo -m`."""

from __future__ import annotations

import posixpath
from itertools import combinations

from preflight.errors import UnreadableFact
from preflight.facts.pci_bus import gpu_devices
from preflight.facts.reading import gap_or
from preflight.model.facts import Gap, Gpu, GpuPath, NicPath, NumaNode, PciDevice
from preflight.model.hca import Nic

NO_PCI = "the device is not in the PCI tree that could be read"


def level(a: PciDevice, b: PciDevice, numa_count: int) -> str:
    """Return the distance between two PCI devices as PIX, PXB, PHB, NODE or SYS, from near to far.

    Raise UnreadableFact if the PCI tree or the NUMA nodes do not show the distance.
    """
    # PIX means that at most one bridge or switch is between the devices. PXB means that several are between the
    # devices. PHB means that the path goes through a host bridge. NODE means that the path goes through two host
    # bridges of one NUMA node. SYS means that the path goes between NUMA nodes.
    if not (a.host_bridge and b.host_bridge):
        raise UnreadableFact("/sys does not show the host bridges of both devices")
    if a.host_bridge != b.host_bridge:
        if isinstance(a.numa_node, Gap) or isinstance(b.numa_node, Gap):
            if numa_count == 1:
                return "NODE"
            raise UnreadableFact("the firmware does not report both NUMA nodes, so the path is NODE or SYS")
        return "NODE" if a.numa_node == b.numa_node else "SYS"
    common = len(posixpath.commonprefix([a.parents, b.parents]))
    if common == 0:
        return "PHB"
    return "PIX" if _switches(a, b, common) <= 1 else "PXB"


def _switches(a: PciDevice, b: PciDevice, common: int) -> int:
    """Return the number of PCIe switches on the path between two devices.

    A switch consists of an upstream port at an odd depth and a downstream port at the next depth.
    """
    turn = 1 if common % 2 == 0 else 0  # the ways part inside a switch, or on the bus below a port
    return turn + sum((len(each.parents) - common) // 2 for each in (a, b))


def gpu_paths(
    gpus: tuple[Gpu, ...] | Gap, known: tuple[GpuPath, ...] | Gap, pci: tuple[PciDevice, ...] | Gap,
    nodes: tuple[NumaNode, ...] | Gap,
) -> tuple[GpuPath, ...] | Gap:  # fmt: skip
    """Return the paths between the GPUs.

    The paths come from NVML (`known`). If NVML lacks a path, the path comes from the PCI tree. If neither source has
    paths, return the Gap object in `known`, which has NVML's reason.
    """
    if isinstance(pci, Gap):
        return known
    places = _places(gpus, pci)
    by_nvml = {(path.a, path.b): path for path in known} if isinstance(known, tuple) else {}
    if isinstance(known, Gap) and len(places) < 2:
        return known
    from_pci = {(a, b): GpuPath(a, b, _level(places[a], places[b], nodes)) for a, b in combinations(sorted(places), 2)}
    readable = {pair: path for pair, path in by_nvml.items() if pair not in from_pci or isinstance(path.level, str)}
    return tuple(path for _, path in sorted((from_pci | readable).items()))


def nic_paths(
    gpus: tuple[Gpu, ...] | Gap, nics: tuple[Nic, ...] | Gap, pci: tuple[PciDevice, ...] | Gap,
    nodes: tuple[NumaNode, ...] | Gap,
) -> tuple[NicPath, ...] | Gap:  # fmt: skip
    """Return the path between each GPU and each RDMA adapter, from the PCI tree.

    The result is a Gap if the adapters or the PCI tree could not be read.
    """
    if isinstance(nics, Gap):
        return nics
    if isinstance(pci, Gap):
        return pci
    devices = {device.bdf: device for device in pci}
    return tuple(
        NicPath(index, nic.name, _level(place, devices.get(nic.bdf) if isinstance(nic.bdf, str) else None, nodes))
        for index, place in sorted(_places(gpus, pci).items())
        for nic in nics
    )


def _places(gpus: tuple[Gpu, ...] | Gap, pci: tuple[PciDevice, ...]) -> dict[int, PciDevice | None]:
    """Return {NVML index: PCI device} for the GPUs.

    Without NVML, the position in bus order is the index, because NVML's order is also the bus order.
    """
    devices = {device.bdf: device for device in pci}
    if isinstance(gpus, Gap):
        return dict(enumerate(gpu_devices(pci)))
    return {gpu.nvml_index: devices.get(gpu.bdf) if isinstance(gpu.bdf, str) else None for gpu in gpus}


def _level(a: PciDevice | None, b: PciDevice | None, nodes: tuple[NumaNode, ...] | Gap) -> str | Gap:
    if a is None or b is None:
        return Gap(NO_PCI)
    return gap_or(lambda: level(a, b, 0 if isinstance(nodes, Gap) else max(1, len(nodes))))
