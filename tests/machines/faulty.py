"""Machines as people have trouble with them, made from those of fleet.py by what was changed on them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from preflight.system.machine import Json, Tree
from tests.machines import fleet
from tests.nvmlsim.machine import bdf
from tests.nvmlsim.machines import L20X10
from tests.sysroot import Fixed, Link, build

MIB = 1 << 20
TORCH = "__version__ = '2.9.1+cu128'\ncuda: str = '12.8'\n"
BRIDGE = "br-4f1c09d2a7e3"  # of a docker compose network


def l20x10_ens34(root: Path) -> Tree:
    """Return the machine of the fifth seed: 10 L20 behind a translating IOMMU, RoCE, and ens34 among the interfaces."""
    tree = fleet.l20x10(root)
    files: fleet.Files = {
        "proc/cmdline": "BOOT_IMAGE=/vmlinuz root=/dev/sda2 amd_iommu=on",
        **fleet.netif_files("ens34", 3),
        **fleet.netif_files("docker0", 4, speed="10000"),
        **fleet.netif_files(BRIDGE, 5, speed="10000"),
        **{f"sys/class/net/{name}/bridge/bridge_id": "8000.0242ac110001" for name in ("docker0", BRIDGE)},
        "sys/class/net/ens34/device/numa_node": "1",
        "sys/class/net/ens34/device/driver": Link("../../../bus/pci/drivers/ixgbe"),
    }
    for group, gpu in enumerate(L20X10.gpus, start=20):
        device = f"sys/bus/pci/devices/{bdf(gpu)}"
        files[f"{device}/iommu_group"] = Link(f"../../../../kernel/iommu_groups/{group}")
        files[f"sys/kernel/iommu_groups/{group}/type"] = "DMA-FQ"
        files[f"sys/kernel/iommu_groups/{group}/devices/{bdf(gpu)}"] = ""
    build(root, files)
    addresses = {"lo": "127.0.0.1", "eno1": "10.0.1.7", "ens34": "10.0.34.7", "docker0": "172.17.0.1",
                 BRIDGE: "172.18.0.1", "ens1f0np0": "10.1.10.7"}  # fmt: skip
    listed = [
        {"name": name, "index": index, "flags": 0x1003, "addresses": [addresses[name]],
         "gateways": ["10.0.34.1"] if name == "ens34" else []}
        for name, index in (("lo", 1), ("eno1", 2), ("ens34", 3), ("docker0", 4), (BRIDGE, 5), ("ens1f0np0", 10))
    ]  # fmt: skip
    return answering(tree, {"interfaces": listed, "software": software("2.27.5")})


def l20x4_docker(root: Path) -> Tree:
    """Return 4 L20 in a docker container as it comes: 64 MiB of /dev/shm, an older driver without cuMem for hosts."""
    gpus = tuple(replace(gpu, numa=0) for gpu in L20X10.gpus[:4])
    machine = replace(L20X10, gpus=gpus, cpus=("0-31",), driver="550.127.05", cuda=12040)
    tree = fleet.flat(root, machine, "Intel(R) Xeon(R) Gold 6430", 64, 256)
    build(root, {".dockerenv": "", "proc/1/cgroup": f"0::/docker/{'3f' * 32}"})
    listed = [
        {"name": "lo", "index": 1, "flags": 0x1003, "addresses": ["127.0.0.1"], "gateways": []},
        {"name": "eno1", "index": 2, "flags": 0x1003, "addresses": ["10.0.1.7"], "gateways": ["10.0.1.1"]},
    ]
    room = {"size_bytes": 64 * MIB, "free_bytes": 64 * MIB}
    return answering(tree, {"interfaces": listed, "shm_statvfs": room, "software": software("2.27.5")})


def a100x4_torch26(root: Path) -> Tree:
    """Return 4 A100, bridged in pairs, with a NCCL that uses P2P across host bridges on AMD's CPUs (before 2.23)."""
    old = "__version__ = '2.6.0+cu124'\ncuda: str = '12.4'\n"
    return answering(fleet.a100x4(root), {"software": software("2.21.5", old)})


def software(nccl: str, version_file: str = TORCH) -> Json:
    """Return the answer of a Python with this NCCL."""
    torch = {
        "location": "/home/alice/venv/torch",
        "version_file": version_file,
        "nccl_wheels": {"nvidia-nccl-cu12": nccl},
    }
    return {"python": "3.11.7", "preflight": "0.1.0", "torch": torch}


def answering(tree: Tree, answers: Mapping[str, Json]) -> Tree:
    """Return the machine with other answers."""
    return Tree(tree.root, {**tree.questions, **{name: Fixed(answer).get for name, answer in answers.items()}})


FAULTY: Mapping[str, Callable[[Path], Tree]] = {
    "l20x10_ens34": l20x10_ens34,
    "l20x4_docker": l20x4_docker,
    "a100x4_torch26": a100x4_torch26,
}
