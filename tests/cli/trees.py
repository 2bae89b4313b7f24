"""Recorded trees of machines whose GPUs don't work, and stand-ins for torch that a probe finds and nothing can run."""

from __future__ import annotations

from pathlib import Path

from tests.sysroot import Link

Files = dict[str, str | bytes | Link]

BDF = "0000:1b:00.0"
BUS = f"sys/bus/pci/devices/{BDF}"
DEVICE: Files = {
    f"{BUS}/vendor": "0x10de",
    f"{BUS}/class": "0x030200",
    f"{BUS}/device": "0x2330",
    f"{BUS}/numa_node": "0",
    "dev/": "",
    "proc/1/cgroup": "0::/init.scope",
    "proc/sys/kernel/osrelease": "6.1.0-18-amd64",
}
MODULE: Files = {"sys/module/nvidia/version": "580.95.05"}
NODES: Files = {"dev/nvidia0": "", "dev/nvidiactl": "", "dev/nvidia-uvm": ""}
CONTAINER: Files = {".dockerenv": ""}


def stand_in_torch(folder: Path, cuda: str | None, body: str = "") -> str:
    """Write a package `torch` that says it was built for this CUDA and whose import runs `body`; return its folder."""
    package = folder / "torch"
    package.mkdir(parents=True)
    (package / "version.py").write_text(f"__version__ = '2.13.0'\ncuda = {cuda!r}\n")
    (package / "__init__.py").write_text(body)
    return str(folder)
