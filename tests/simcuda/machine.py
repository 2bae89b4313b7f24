"""A machine for the simulated CUDA: the facts of a node, as reports have them, written for NVML, the driver and NCCL.

The facts are the JSON that tests/simnccl reads too (`node` of a kept capture in tests/machines), so that it and the
real NCCL see the same buses, UUIDs, NVLinks, peer access and PCI tree.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import combinations, product
from pathlib import Path
from typing import Any

from tests.nvmlsim.machine import AFTER, GPU, SWITCH, SimGpu, SimLink, SimMachine, render
from tests.simcuda import adapters
from tests.simcuda.places import WITH_DATA, built, nccl
from tests.simcuda.topology import topology
from tests.simnccl import machines as captures

Facts = Mapping[str, Any]
MEMORY_MIB = 512  # eight ranks then fit into 4 GiB of the host's
NVLS_MEMORY_MIB = 4096  # NCCL takes more than 3 GiB for NVLS and all-to-all on eight GPUs; little of it is touched
LEVELS = {"PIX": 10, "PXB": 20, "PHB": 30, "NODE": 40, "SYS": 50}  # of NVML
P2P_STATUS = {"ok": 0, "chipset_not_supported": 1, "gpu_not_supported": 2, "disabled_by_regkey": 4, "not_supported": 5}
NVLINK_VERSIONS = {"1.0": 1, "2.0": 2, "2.2": 3, "3.0": 4, "3.1": 5, "4.0": 6, "5.0": 7}
LIBRARIES = ("libcuda.so.1", "libcudart.so.12", "libnvidia-ml.so.1")
TUNER = "libnccl-tuner.so"  # by this name NCCL looks for one by itself


@dataclass(frozen=True, slots=True)
class Machine:
    """A node's facts, and settings that are added to them (SIMCUDA_ names without the prefix)."""

    name: str
    node: Facts
    settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def gpus(self) -> list[Facts]:
        return list(self.node["gpus"])

    @property
    def has_nvls(self) -> bool:
        switched = any(link.get("peer") == "switch" for gpu in self.gpus for link in gpu.get("nvlinks") or ())
        return switched and all(float(gpu["compute_capability"]) >= 9 for gpu in self.gpus)

    @property
    def has_adapters(self) -> bool:
        """Whether NCCL finds the RDMA adapters of the facts: the setting ADAPTERS."""
        return "ADAPTERS" in self.settings

    @property
    def memory_mib(self) -> int:
        return int(self.settings.get("MEMORY_MIB", NVLS_MEMORY_MIB if self.has_nvls else MEMORY_MIB))


def capture(name: str, **settings: str) -> Machine:
    """Return the machine of a kept capture of tests/machines."""
    return Machine(name, captures.node(name), settings)


def with_adapters(name: str, machine: Machine, is_roce: bool = False, **settings: str) -> Machine:
    """Return the machine with an RDMA adapter in place of each of its network cards, mlx5_0 and so on."""
    cards = [each for each in machine.node["pci"] if each["kind"] == "nic"]
    netifs = [each for each in machine.node["netifs"] if "bdf" not in each]
    found = [adapters.describe(i, card["bdf"], card["numa_node"], is_roce) for i, card in enumerate(cards)]
    facts = {"nics": [nic for nic, _ in found], "hca_ports": [port for _, port in found], "netifs": netifs}
    return Machine(name, {**machine.node, **facts}, {**machine.settings, "ADAPTERS": "1", **settings})


def named(name: str) -> Machine:
    """Return a machine by name: of KINDS here or a kept capture."""
    return KINDS[name] if name in KINDS else capture(name)


def pcie(
    name: str, gpus: int, per_numa: int, per_switch: int, cpu: str = "Intel(R) Xeon(R) Gold 6330", nics: int = 0
) -> Machine:
    """Return A100s on PCIe switches; per_switch 0 puts each on a root port of its own.

    `nics` is the speed in Mbit/s of a network card below each switch, eth1 and so on.
    """
    devices: list[dict[str, Any]] = []
    tree: list[dict[str, Any]] = []
    netifs = [_netif(0)]
    for i in range(gpus):
        numa, place = divmod(i, per_numa)
        switch = place // per_switch if per_switch else place
        above = 0x10 + 0x40 * numa + 0x10 * switch
        bdf = f"0000:{above + 1 + (place % per_switch if per_switch else 0):02x}:00.0"
        parents = [f"0000:{above - 1:02x}:01.0"]
        parents += [f"0000:{above:02x}:00.0", f"0000:{above:02x}:1{place % per_switch}.0"] if per_switch else []
        devices.append(
            {
                "nvml_index": i, "uuid": f"GPU-{i + 1:08x}-51dc-0da0-8000-000000000000", "bdf": bdf,
                "name": "NVIDIA A100-PCIE-40GB", "compute_capability": "8.0", "numa_node": numa, "nvlinks": [],
            }
        )  # fmt: skip
        link = {"speed_max_gt_s": 16.0, "width_max": 16, "numa_node": numa}
        tree.append({"bdf": bdf, "kind": "gpu", "host_bridge": f"pci0000:{numa}", "parents": parents, **link})
        if nics and place % per_switch == 0:
            card = f"0000:{above + 8:02x}:00.0"
            tree.append({"bdf": card, "kind": "nic", "host_bridge": f"pci0000:{numa}", "parents": parents, **link})
            netifs.append(_netif(len(netifs), bdf=card, speed_mbit_s=nics))
    return Machine(
        name,
        {
            "system": {"cpu_model": cpu, "architecture": "x86_64"},
            "driver": {"version": "580.95.05", "cuda": "13.0"},
            "gpus": devices,
            "pci": tree,
            "numa_nodes": [
                {"id": numa, "cpus": [*range(32 * numa, 32 * numa + 32)]} for numa in range(-(-gpus // per_numa))
            ],
            "netifs": netifs,
            "gpu_paths": [
                {"a": a["nvml_index"], "b": b["nvml_index"], "level": "PIX" if _switch(tree, a) == _switch(tree, b) else
                 "NODE" if a["numa_node"] == b["numa_node"] else "SYS"}
                for a, b in combinations(devices, 2)
            ],
            "gpu_p2p": [
                {"a": a, "b": b, "read": "ok", "write": "ok", "nvlink": "not_supported", "atomics": "ok", "pci": "ok"}
                for a, b in combinations(range(gpus), 2)
            ],
        },
    )  # fmt: skip


def _netif(i: int, **more: Any) -> dict[str, Any]:
    up = {"is_up": True, "has_carrier": True}
    return {"name": f"eth{i}", "kind": "physical", "addresses": [f"198.18.0.{i + 1}"], **up, **more}


def _switch(tree: list[dict[str, Any]], gpu: Facts) -> str:
    parents = next(each["parents"] for each in tree if each["bdf"] == gpu["bdf"])
    return str(parents[1] if len(parents) > 1 else gpu["bdf"])


KINDS = {
    machine.name: machine
    for machine in (
        pcie("pcie2-pix", 2, 2, 2),
        pcie("pcie2-sys", 2, 1, 0),
        pcie("pcie4-2numa", 4, 2, 2),
        pcie("pcie4-nics", 4, 2, 2, nics=200_000),
        pcie("pcie4-amd", 4, 4, 0, "AMD EPYC 7543 32-Core Processor"),
        pcie("pcie8-2numa", 8, 4, 2),
        pcie("pcie8-amd", 8, 4, 2, "AMD EPYC 7543 32-Core Processor"),
    )
}
CARDS = KINDS["pcie4-nics"]
KINDS |= {
    machine.name: machine
    for machine in (
        with_adapters("pcie4-ib", CARDS),
        with_adapters("pcie4-roce", CARDS, is_roce=True),
        with_adapters("pcie4-gdr", CARDS, GDR="1"),
        with_adapters("pcie4-roce-gdr", CARDS, is_roce=True, GDR="1"),
    )
}


def install(machine: Machine, folder: Path, data: bool = False, torch: bool = False) -> dict[str, str]:
    """Put the libraries and files of the machine into a folder; return the environment of whoever runs on it.

    With `data` NCCL finds the tuner that makes it use what is computed; with `torch` a program finds NCCL by itself.
    """
    folder.mkdir(parents=True, exist_ok=True)
    links = {name: built(name) for name in (*LIBRARIES, *((TUNER,) if data or torch else ()))}
    if torch:
        links["libnccl.so.2"] = nccl(_version(machine))
    if machine.has_adapters:
        links |= dict.fromkeys(("libibverbs.so", "libibverbs.so.1"), built("libibverbs.so.1"))
    for name, target in links.items():
        (folder / name).unlink(missing_ok=True)
        os.symlink(target, folder / name)
    answers, set_here = render(nvml(machine)), _settings(machine)
    if machine.has_adapters:
        set_here = {"FABRIC": str(folder / "fabric"), "SYS": str(folder / "sys")} | set_here
        Path(set_here["FABRIC"]).mkdir(exist_ok=True, parents=True)
        answers += adapters.answers(machine.node)
        here = adapters.on_node(machine.node, int(set_here.get("NODE", "0")))
        adapters.write_sys(here, folder / "sys", has_peermem="GDR" in set_here)
    settings = "".join(f"SIMCUDA_{name} {value}\n" for name, value in set_here.items())
    (folder / "libnvidia-ml.so.1.machine").write_text(answers + settings, encoding="utf-8")
    (folder / "topology.xml").write_text(topology(machine.node, machine.has_adapters), encoding="utf-8")
    environ = {"LD_LIBRARY_PATH": str(folder), "LD_PRELOAD": str(built("libpolling.so"))}
    environ["SIMCUDA_MACHINE"] = str(folder / "libnvidia-ml.so.1.machine")
    if torch:
        environ["LD_LIBRARY_PATH"] += f":{built('stubs')}"
        environ |= {"SIMCUDA_NCCL": str(nccl(_version(machine))), "CUDA_MODULE_LOADING": "LAZY"}
    return environ


def _version(machine: Machine) -> str:
    """Return the version of NCCL that torch finds here; only one of them moves data."""
    return machine.settings.get("NCCL", WITH_DATA)


def _settings(machine: Machine) -> dict[str, str]:
    return ({"NVLS": "1"} if machine.has_nvls else {}) | dict(machine.settings)


def nvml(machine: Machine) -> SimMachine:
    """Return the machine for tests/nvmlsim, with GPUs of the size that is simulated."""
    node = machine.node
    gpus = tuple(_gpu(machine, gpu) for gpu in machine.gpus)
    answers = {f"nvmlDeviceGetUUID/{i}": gpu["uuid"] for i, gpu in enumerate(machine.gpus)}
    if wake_s := machine.settings.get("WAKE_S"):  # no persistence mode: each GPU sleeps until its first handle
        answers |= {f"nvmlDeviceGetHandleByIndex/{i}": f"{AFTER} {wake_s}" for i in range(len(gpus))}
    for a, b in product(range(len(gpus)), repeat=2):  # NCCL asks each GPU of itself too
        for capability, status in enumerate(_p2p(node, a, b)):
            answers[f"nvmlDeviceGetP2PStatus/{a}/{b}/{capability}"] = str(status)
    levels = {
        (path["a"], path["b"]): LEVELS[path["level"]] for path in node.get("gpu_paths") or () if path["level"] in LEVELS
    }
    major, minor = node["driver"]["cuda"].split(".")
    return SimMachine(
        machine.name,
        gpus,
        tuple(",".join(map(str, each["cpus"])) for each in node["numa_nodes"]),
        driver=node["driver"]["version"],
        cuda=int(major) * 1000 + int(minor) * 10,
        ancestors=levels,
        answers=answers,
    )


def _gpu(machine: Machine, gpu: Facts) -> SimGpu:
    major, minor = gpu["compute_capability"].split(".")
    clocks, pcie_link = gpu.get("clocks") or {}, gpu.get("pcie") or {}
    fabric = (3, 0, 0b1010_1010) if (gpu.get("fabric") or {}).get("state") == "completed" else None
    return SimGpu(
        gpu["name"],
        f"0000{gpu['bdf'].upper()}",
        (int(major), int(minor)),
        memory_mib=machine.memory_mib,
        numa=gpu.get("numa_node") or 0,
        bar1_mib=65536,
        power_w=int(gpu.get("power_limit_w") or 300),
        pcie_gen=pcie_link.get("gen_max") or 4,
        reserved_mib=0,
        used_mib=0,
        links=tuple(_links(gpu)),
        sm_max_mhz=clocks.get("sm_max_mhz") or 1410,
        memory_mhz=clocks.get("memory_mhz") or 1215,
        mig=(0, 0) if gpu.get("mig_mode") else None,
        ecc=(1, 1) if gpu.get("ecc_mode") == "enabled" else None,
        remap=(0, 0, 0, 0) if gpu.get("row_remap") else None,
        fabric=fabric,
        compute_mode=3 if machine.settings.get("EXCLUSIVE") else 0,
    )


def _links(gpu: Facts) -> Iterator[SimLink]:
    for link in gpu.get("nvlinks") or ():
        kind = SWITCH if link["peer"] == "switch" else GPU
        yield SimLink(
            kind, f"0000{link['peer_bdf'].upper()}", NVLINK_VERSIONS.get(link["generation"], 6), link["is_active"]
        )


def _p2p(node: Facts, a: int, b: int) -> Iterator[int]:
    if a == b:
        yield from (0, 0, 0, 0, 0)
        return
    pair = next((each for each in node.get("gpu_p2p") or () if {each["a"], each["b"]} == {a, b}), None)
    for capability in ("read", "write", "nvlink", "atomics", "pci"):
        yield P2P_STATUS.get(pair[capability], 5) if pair else (5 if capability == "nvlink" else 0)
