"""Read which NVIDIA GPUs are on the PCI bus, whether or not a driver knows them."""

from __future__ import annotations

import re

from preflight.errors import UnreadableFact
from preflight.model.facts import NvidiaPciDevice
from preflight.probe.reading import gap_or, parse_numa_node
from preflight.system.machine import Machine

DEVICES = "sys/bus/pci/devices"
NVIDIA = "0x10de"
DISPLAY_CONTROLLER = "0x03"  # VGA 0x0300 and 3D 0x0302; audio, USB and NVSwitch bridges have others


def probe_nvidia_pci(machine: Machine) -> tuple[NvidiaPciDevice, ...]:
    """Return the GPUs in bus order; none on a machine without a PCI bus."""
    if not machine.exists("sys/bus"):
        raise UnreadableFact("/sys/bus: not there, so the PCI bus can't be seen")
    return tuple(_read_device(machine, bdf) for bdf in machine.names(DEVICES) if _is_nvidia_gpu(machine, bdf))


def _is_nvidia_gpu(machine: Machine, bdf: str) -> bool:
    if not machine.exists(f"{DEVICES}/{bdf}/vendor"):
        return False  # unplugged since the directory was listed
    return machine.text(f"{DEVICES}/{bdf}/vendor") == NVIDIA and is_display(machine.text(f"{DEVICES}/{bdf}/class"))


def _read_device(machine: Machine, bdf: str) -> NvidiaPciDevice:
    return NvidiaPciDevice(
        bdf=bdf,
        device_id=parse_id(machine.text(f"{DEVICES}/{bdf}/device")),
        driver=gap_or(lambda: _read_driver(machine, bdf)),
        numa_node=gap_or(lambda: parse_numa_node(machine.text(f"{DEVICES}/{bdf}/numa_node"))),
    )


def _read_driver(machine: Machine, bdf: str) -> str:
    if not machine.exists(f"{DEVICES}/{bdf}/driver"):
        raise UnreadableFact("no kernel driver is bound to it")
    return machine.link(f"{DEVICES}/{bdf}/driver").rpartition("/")[2]


def is_display(pci_class: str) -> bool:
    """Tell whether a PCI class such as `0x030200` is a display controller."""
    return pci_class.startswith(DISPLAY_CONTROLLER) and len(pci_class) == len("0x030200")


def parse_id(text: str) -> str:
    """Return a PCI id as the kernel spells it, `0x2330`."""
    if not re.fullmatch(r"0x[0-9a-f]{4}", text):
        raise UnreadableFact(f"{text[:40]!r} is not a PCI id")
    return text
