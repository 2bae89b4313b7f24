"""Build the simulated NVML and put it, with the files that such a machine has, into a tree that `--sysroot` takes."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from preflight.system.kernel_queries import tree_machine
from preflight.system.machine import Tree
from tests.nvmlsim.machine import SimMachine, bdf, render
from tests.sysroot import Link, build

SOURCE = Path(__file__).with_name("nvmlsim.c")
LIBRARY = "libnvidia-ml.so.1"
GT_S = {3: "8.0", 4: "16.0", 5: "32.0"}  # by PCIe generation


BUILT: list[tempfile.TemporaryDirectory[str]] = []  # each goes when the process ends


@functools.cache
def library(*defines: str) -> Path:
    """Compile the library once per process; `-DOLD_DRIVER` leaves out what old drivers lack."""
    folder = tempfile.TemporaryDirectory(prefix="nvmlsim-")
    BUILT.append(folder)
    out = Path(folder.name) / LIBRARY
    flags = ["-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", f"-Wl,-soname,{LIBRARY}"]
    subprocess.run(["gcc", *flags, *defines, "-o", str(out), str(SOURCE), "-ldl"], check=True)
    return out


def simulate(machine: SimMachine, root: Path, *defines: str) -> Tree:
    """Write the machine's files below `root` and return it."""
    files: dict[str, str | bytes | Link] = {
        "sys/module/nvidia/version": machine.driver,
        "dev/nvidiactl": "",
        "dev/nvidia-uvm": "",
        "proc/self/ns/": "",
        "proc/1/comm": "systemd",
        "sys/kernel/iommu_groups/": "",
        "sys/class/infiniband/": "",
    }
    for node, cpus in enumerate(machine.cpus):
        files[f"sys/devices/system/node/node{node}/cpulist"] = cpus
        files[f"sys/devices/system/node/node{node}/meminfo"] = f"Node {node} MemTotal: 131072000 kB"
        distances = " ".join("10" if other == node else "21" for other in range(len(machine.cpus)))
        files[f"sys/devices/system/node/node{node}/distance"] = distances
    for i, gpu in enumerate(machine.gpus):
        device = f"sys/bus/pci/devices/{bdf(gpu)}"
        files |= {
            f"{device}/vendor": "0x10de",
            f"{device}/device": "0x2330",
            f"{device}/class": "0x030200",
            f"{device}/numa_node": str(gpu.numa),
            f"{device}/current_link_width": str(gpu.pcie_width),
            f"{device}/max_link_width": str(gpu.pcie_width_max),
            f"{device}/current_link_speed": "2.5 GT/s PCIe",
            f"{device}/max_link_speed": f"{GT_S[gpu.pcie_gen]} GT/s PCIe",
            f"{device}/driver": Link("../../../bus/pci/drivers/nvidia"),
            f"dev/nvidia{i}": "",
        }
    build(root, files)
    os.symlink("pid:[4026531836]", root / "proc/self/ns/pid")
    shutil.copy(library(*defines), root / LIBRARY)
    (root / f"{LIBRARY}.machine").write_text(render(machine), encoding="utf-8")
    return tree_machine(root)
