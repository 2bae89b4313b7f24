"""Read what RDMA applications can open, and how GPU memory can be handed to an adapter."""

from __future__ import annotations

import re

from preflight.errors import UnreadableFact
from preflight.model.facts import RdmaFacts
from preflight.probe.device_nodes import PROC
from preflight.probe.reading import first_of, gap_or
from preflight.system.machine import Machine

VERBS = "sys/class/infiniband_verbs"
# The files that NCCL looks at (net_ib/gdr.cc): of the older out-of-tree modules and of the driver's own one.
PEERMEM = (
    "sys/module/nvidia_peermem/version",
    "sys/kernel/mm/memory_peers/nv_mem/version",
    "sys/kernel/mm/memory_peers/nv_mem_nc/version",
)
DMA_BUF_SINCE = (5, 12)  # ib_umem_dmabuf_get, Linux 5.12


def probe_rdma(machine: Machine) -> RdmaFacts:
    """Return the device files and the ways to GPU memory; each is a Gap by itself."""
    if not machine.exists("dev"):
        raise UnreadableFact("/dev: not there")
    return RdmaFacts(
        uverbs=tuple(name for name in machine.names("dev/infiniband") if name.startswith("uverbs")),
        uverbs_expected=gap_or(lambda: _expected(machine)),
        peermem=gap_or(lambda: _peermem(machine)),
        dma_buf=gap_or(lambda: _dma_buf(machine)),
    )


def _expected(machine: Machine) -> tuple[str, ...]:
    if not machine.exists("sys/class"):
        raise UnreadableFact("/sys/class: not there")
    return tuple(name for name in machine.names(VERBS) if name.startswith("uverbs"))


def _peermem(machine: Machine) -> str:
    present = next((path for path in PEERMEM if machine.exists(path)), None)
    if present is None:
        if not machine.exists("sys/module"):
            raise UnreadableFact("/sys/module: not there")
        raise UnreadableFact("no peermem module is loaded")
    return machine.text(present)


def _dma_buf(machine: Machine) -> bool:
    driver = machine.text(PROC)
    release = first_of(lambda: str(machine.ask("uname")["release"]), lambda: machine.text("proc/sys/kernel/osrelease"))
    return is_open_module(driver) and kernel_version(release) >= DMA_BUF_SINCE


def is_open_module(text: str) -> bool:
    """Tell whether /proc/driver/nvidia/version is of the open kernel modules, which alone export dma-bufs."""
    return "Open Kernel Module" in text


def kernel_version(release: str) -> tuple[int, int]:
    """Return (6, 1) for `6.1.0-18-amd64`."""
    match = re.match(r"(\d{1,3})\.(\d{1,4})", release)
    if match is None:
        raise UnreadableFact(f"kernel release: {release[:40]!r}")
    return int(match[1]), int(match[2])
