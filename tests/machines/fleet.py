"""Whole machines, as far as probes look: the simulated NVML with the PCI tree, adapters and interfaces around it.

Their captures lie beside this file (`PREFLIGHT_GOLDEN=write` writes them anew) and are what the kept pages show.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

from preflight.system.machine import Json, Tree
from tests.nvmlsim.machine import SimMachine, bdf
from tests.nvmlsim.machines import A100X4, H100X8, L20X10, RTX4090X2
from tests.nvmlsim.simulate import simulate
from tests.sysroot import Fixed, Link, build

Files = dict[str, str | bytes | Link]
GIB = 1 << 30
CPUINFO = "processor\t: 0\nmodel name\t: {}\nflags\t\t: fpu sse2 avx512f\n"
LINK: Files = {"current_link_speed": "32.0 GT/s PCIe", "max_link_speed": "32.0 GT/s PCIe"}
LINK |= {"current_link_width": "16", "max_link_width": "16"}
TORCH = "__version__ = '2.7.1+cu126'\ncuda: str = '12.6'\n"


def h100x8(root: Path) -> Tree:
    """Return 8 H100 with NVSwitch, one NDR adapter below each GPU's switch, and a RoCE bond for storage."""
    tree = simulate(H100X8, root)
    for i, gpu in enumerate(H100X8.gpus):
        bus = 0x10 + 0x10 * i
        ports = _bridges(root, bus, gpu.numa, downs=2)
        _hang(root, bdf(gpu), ports[0])
        _adapter(root, f"mlx5_{i}", f"0000:{bus + 3:02x}:00.0", ports[1], gpu.numa, f"ib{i}")
    bond = _bridges(root, 0xF0, 1, downs=1)
    _adapter(root, "mlx5_bond_0", "0000:f3:00.0", bond[0], 1, "bond0", ethernet=True)
    return _complete(tree, root, H100X8, "Intel(R) Xeon(R) Platinum 8480C", 224, 2048)


def l20x10(root: Path) -> Tree:
    """Return 10 L20 below PCIe switches on two sockets, with one RoCE adapter on the first."""
    tree = simulate(L20X10, root)
    for socket in (0, 1):
        gpus = [gpu for gpu in L20X10.gpus if gpu.numa == socket]
        ports = _bridges(root, 0x10 + 0x80 * socket, socket, downs=5)
        for gpu, port in zip(gpus, ports, strict=True):
            _hang(root, bdf(gpu), port)
    nic = _bridges(root, 0x70, 0, downs=1)
    _adapter(root, "mlx5_0", "0000:73:00.0", nic[0], 0, "ens1f0np0", ethernet=True, rate="100 Gb/sec (4X EDR)")
    return _complete(tree, root, L20X10, "AMD EPYC 7543 32-Core Processor", 128, 512)


def a100x4(root: Path) -> Tree:
    """Return 4 A100 on PCIe, bridged in pairs, without RDMA."""
    tree = simulate(A100X4, root)
    for i, gpu in enumerate(A100X4.gpus):
        _hang(root, bdf(gpu), _bridges(root, 0x10 + 0x20 * i, gpu.numa, downs=1)[0])
    return _complete(tree, root, A100X4, "AMD EPYC 7302 16-Core Processor", 64, 256)


def rtx4090x2(root: Path) -> Tree:
    """Return a workstation with 2 RTX 4090 on one root complex."""
    tree = simulate(RTX4090X2, root)
    for i, gpu in enumerate(RTX4090X2.gpus):
        _hang(root, bdf(gpu), f"sys/devices/pci0000:00/0000:00:0{i + 1}.0")
    return _complete(tree, root, RTX4090X2, "AMD Ryzen Threadripper PRO 5975WX 32-Cores", 64, 128)


def flat(root: Path, machine: SimMachine, cpu: str, cpus: int, memory_gib: int) -> Tree:
    """Return GPUs on one root complex, as a container or a virtual machine often shows them."""
    tree = simulate(machine, root)
    for i, gpu in enumerate(machine.gpus):
        _hang(root, bdf(gpu), f"sys/devices/pci0000:00/0000:00:{i + 1:02x}.0")
    return _complete(tree, root, machine, cpu, cpus, memory_gib)


MACHINES: Mapping[str, Callable[[Path], Tree]] = {
    "h100x8": h100x8,
    "l20x10": l20x10,
    "a100x4": a100x4,
    "rtx4090x2": rtx4090x2,
}


def _bridges(root: Path, bus: int, numa: int, downs: int) -> list[str]:
    """Build a root port and a switch below it; return the places of its downstream ports."""
    top = f"sys/devices/pci0000:{bus:02x}/0000:{bus:02x}:01.0"
    up = f"{top}/0000:{bus + 1:02x}:00.0"
    ports = [f"{up}/0000:{bus + 2:02x}:{i:02x}.0" for i in range(downs)]
    for place in (top, up, *ports):
        _device(root, place, "0x060400", "0x1000", "0xc030", numa, config=bytes(64))
    return ports


def _device(
    root: Path, place: str, pci_class: str, vendor: str, model: str, numa: int, **files: str | bytes | Link
) -> None:
    name = place.rpartition("/")[2]
    told: Files = {"class": pci_class, "vendor": vendor, "device": model, "numa_node": str(numa), **LINK, **files}
    entry: Files = {f"sys/bus/pci/devices/{name}": Link(f"../../../{place.removeprefix('sys/')}")}
    build(root, {f"{place}/{key}": value for key, value in told.items()} | entry)


def _hang(root: Path, address: str, below: str) -> None:
    """Move a device that the simulation put flat under /sys/bus to its place in the tree."""
    flat = root / "sys/bus/pci/devices" / address
    (root / below).mkdir(parents=True, exist_ok=True)
    shutil.move(flat, root / below / address)
    flat.symlink_to(f"../../../{below.removeprefix('sys/')}/{address}")


def _adapter(
    root: Path, name: str, address: str, below: str, numa: int, netif: str, *,
    ethernet: bool = False, rate: str = "",
) -> None:  # fmt: skip
    place = f"{below}/{address}"
    _device(root, place, "0x020700", "0x15b3", "0x1021", numa, driver=Link("../../../../bus/pci/drivers/mlx5_core"))
    low = f"b859:9f03:0012:{int(address[5:7], 16):04x}"
    gids = {"0": f"fe80:0000:0000:0000:{low}"} | ({"3": "0000:0000:0000:0000:0000:ffff:0a00:0107"} if ethernet else {})
    port = {
        "state": "4: ACTIVE",
        "phys_state": "5: LinkUp",
        "rate": rate or ("200 Gb/sec (4X HDR)" if ethernet else "400 Gb/sec (4X NDR)"),
        "link_layer": "Ethernet" if ethernet else "InfiniBand",
        "lid": "0x0" if ethernet else f"0x{int(address[5:7], 16):x}",
        "sm_lid": "0x0" if ethernet else "0x1",
        "pkeys/0": "0xffff",
        "counters/symbol_error": "0",
        **{f"gids/{i}": gid for i, gid in gids.items()},
        **{f"gid_attrs/types/{i}": "RoCE v2" if i == "3" else "IB/RoCE v1" for i in gids},
        **({f"gid_attrs/ndevs/{i}": netif for i in gids} if ethernet else {}),
    }
    number = len(list((root / "sys/class/infiniband").iterdir()))
    kind = "1" if ethernet else "32"
    build(
        root,
        {
            **{f"sys/class/infiniband/{name}/ports/1/{key}": value for key, value in port.items()},
            f"sys/class/infiniband/{name}/device": Link(f"../../../{place.removeprefix('sys/')}"),
            f"sys/class/infiniband/{name}/fw_ver": "28.41.1000",
            f"sys/class/infiniband_verbs/uverbs{number}/ibdev": name,
            f"dev/infiniband/uverbs{number}": "",
            f"{place}/net/{netif}/ifindex": str(10 + number),
            **netif_files(netif, 10 + number, type=kind, mtu="4092", speed="200000" if ethernet else "400000"),
            f"sys/class/net/{netif}/device": Link(f"../../../{place.removeprefix('sys/')}"),
        },
    )


def netif_files(name: str, index: int, **files: str) -> Files:
    told = {"ifindex": str(index), "iflink": str(index), "type": "1", "flags": "0x1003", "mtu": "1500", "carrier": "1"}
    return {f"sys/class/net/{name}/{key}": value for key, value in (told | {"speed": "25000"} | files).items()}


def _complete(tree: Tree, root: Path, machine: SimMachine, cpu: str, cpus: int, memory_gib: int) -> Tree:
    """Add what every Linux server has, and the answers that are not files."""
    build(
        root,
        {
            "proc/cpuinfo": CPUINFO.format(cpu),
            "proc/meminfo": f"MemTotal: {memory_gib << 20} kB\nMemAvailable: {memory_gib - 20 << 20} kB",
            "proc/cmdline": "BOOT_IMAGE=/vmlinuz root=UUID=0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9 iommu=pt",
            "proc/self/cgroup": "0::/user.slice",
            "proc/1/cgroup": "0::/init.scope",
            "sys/fs/cgroup/cgroup.controllers": "cpu memory",
            "sys/devices/system/cpu/online": f"0-{cpus - 1}",
            "sys/class/dmi/id/sys_vendor": "Supermicro",
            "sys/class/dmi/id/product_name": "SYS-821GE-TNHR",
            "sys/class/dmi/id/bios_vendor": "American Megatrends International, LLC.",
            "sys/class/dmi/id/bios_version": "2.1",
            "sys/class/dmi/id/bios_date": "01/26/2024",
            **netif_files("lo", 1, type="772"),
            **netif_files("eno1", 2),
            "sys/class/net/eno1/device/numa_node": "0",
            "sys/class/net/eno1/device/driver": Link("../../../bus/pci/drivers/ixgbe"),
        },
    )
    interfaces = [
        {"name": name, "index": index, "flags": 0x1003, "addresses": addresses, "gateways": gateways}
        for name, index, addresses, gateways in _listed(root)
    ]
    host = f"gpu-{len(machine.gpus)}.example.org"
    answers: dict[str, Json] = {
        "uname": {"nodename": host, "release": "6.8.0-60-generic", "machine": "x86_64"},
        "host_addresses": {"name": host, "addresses": ["10.0.1.7"]},
        "interfaces": interfaces,
        "cpu_affinity": list(range(cpus)),
        "rlimits": {"memlock": "unlimited", "nofile": 1048576, "stack": 8 << 20, "nproc": 1 << 20},
        "shm_statvfs": {"size_bytes": memory_gib * GIB // 2, "free_bytes": memory_gib * GIB // 2},
        "shm_mapped": [],
        "environment": {},
        "home": {"home": "/home/alice", "working_directory": "/home/alice/job"},
        "software": {
            "python": "3.11.7",
            "preflight": "0.1.0",
            "torch": {"location": "/home/alice/venv/torch", "version_file": TORCH,
                      "nccl_wheels": {"nvidia-nccl-cu12": "2.26.2"}},
        },
    }  # fmt: skip
    return Tree(root, {**tree.questions, **{name: Fixed(answer).get for name, answer in answers.items()}})


def _listed(root: Path) -> list[tuple[str, int, list[str], list[str]]]:
    found = []
    for folder in (root / "sys/class/net").iterdir():
        index = int((folder / "ifindex").read_text())
        addresses = {"lo": ["127.0.0.1", "::1"], "eno1": ["10.0.1.7", "fe80::3eec:efff:fe12:3456"]}
        found.append((folder.name, index, addresses.get(folder.name, [f"10.1.{index}.7"]),
                      ["10.0.1.1"] if folder.name == "eno1" else []))  # fmt: skip
    return sorted(found, key=lambda each: each[1])
