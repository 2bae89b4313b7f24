"""Adapters, ports, PCI trees and paths that tests start from: healthy ones, in which a test changes one thing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

from preflight.model.facts import Gap, GpuPath, HcaPort, Nic, NicPath, NodeFacts, PciDevice, PciKind, known
from preflight.model.hca import Gid, NicKind, PhysState, PortState
from tests.gpus import bdf
from tests.node_facts import gpu_node

NEEDS_ROOT = Gap("config space: only 64 bytes are readable without root")
V1 = Gid(0, "fe80:0000:0000:0000:0a00:00ff:fe00:0001", "IB/RoCE v1", "eth1")
V2 = Gid(3, "0000:0000:0000:0000:0000:ffff:0a00:0005", "RoCE v2", "eth1")


def nic(name: str = "mlx5_0", **overrides: Any) -> Nic:
    """Return a ConnectX-7 on NUMA node 0 that speaks InfiniBand."""
    made = Nic(name, NicKind.INFINIBAND, "0000:18:00.0", "mlx5_core", "15b3:1021", "28.41.1000", 0, ("ib0",))
    return replace(made, **overrides)


def port(hca: str = "mlx5_0", **overrides: Any) -> HcaPort:
    """Return an active NDR port."""
    made = HcaPort(
        hca, 1, PortState.ACTIVE, PhysState.LINK_UP, 400.0, "InfiniBand", 17, 1, (V1,), ("0xffff",), counters=()
    )
    return replace(made, **overrides)


def roce_port(hca: str = "mlx5_0", **overrides: Any) -> HcaPort:
    """Return an active Ethernet port with a GID of each version."""
    return port(hca, **{"link_layer": "Ethernet", "rate_gbit_s": 100.0, "gids": (V1, V2), "sm_lid": 0, **overrides})


def device(address: str, kind: PciKind = PciKind.GPU, parents: tuple[str, ...] = (), **overrides: Any) -> PciDevice:
    """Return a device of a host without an IOMMU."""
    made = PciDevice(address, kind, "10de:2330", "pci0000:10", parents, 0, 32.0, 32.0, 16, 16, (), "", "")
    return replace(made, **overrides)


def pcie_node(levels: Sequence[str] = ("PIX",), count: int = 2, **overrides: Any) -> NodeFacts:
    """Return a node whose GPUs share a PCIe switch and no NVLink; `levels` are those of the pairs in order."""
    root, up = "0000:01:00.0", "0000:02:00.0"
    downs = [f"0000:03:{i:02x}.0" for i in range(count)]
    tree = (
        *(device(bdf(i), parents=(root, up, downs[i])) for i in range(count)),
        device(root, PciKind.ROOT_PORT),
        device(up, PciKind.SWITCH_UPSTREAM, (root,)),
        *(device(down, PciKind.SWITCH_DOWNSTREAM, (root, up)) for down in downs),
    )
    pairs = list(combinations(range(count), 2))
    told = tuple(GpuPath(a, b, levels[i % len(levels)]) for i, (a, b) in enumerate(pairs))
    return gpu_node(count, **{"gpu_paths": told, "pci": tree, **overrides})


def with_device(node: NodeFacts, kind: PciKind, **overrides: Any) -> NodeFacts:
    """Return the node with all devices of one kind changed."""
    tree = tuple(replace(each, **overrides) if each.kind is kind else each for each in known(node.pci))
    return replace(node, pci=tree)


def reaching(*levels: tuple[int, str, str]) -> tuple[NicPath, ...]:
    """Return paths of (gpu, nic, level)."""
    return tuple(NicPath(*each) for each in levels)
