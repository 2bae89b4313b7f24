"""Read the GPUs and accelerators that are not from NVIDIA, on the PCI bus and in /dev."""

from __future__ import annotations

from collections.abc import Iterator

from preflight.facts.pci_bus import DEVICES, parse_id
from preflight.facts.reading import need
from preflight.model.facts import OtherDevice
from preflight.model.other_makers import DISPLAY, OTHER_MAKERS
from preflight.system.machine import Machine

BY_VENDOR = {maker.vendor: maker for maker in OTHER_MAKERS}


def probe_other_devices(machine: Machine) -> tuple[OtherDevice, ...]:
    """Return the accelerators on the PCI bus in bus order, then the accelerators that exist only in /dev."""
    # A display controller is included only if torch has builds for GPUs of the same maker.
    need(machine, "sys/bus", ", so the PCI bus can't be read")
    return (*_on_bus(machine), *_below_dev(machine))


def _on_bus(machine: Machine) -> Iterator[OtherDevice]:
    for bdf in machine.names(DEVICES):
        if not machine.exists(f"{DEVICES}/{bdf}/vendor"):
            continue  # unplugged since the directory was listed
        maker = BY_VENDOR.get(machine.text(f"{DEVICES}/{bdf}/vendor"))
        if maker is None:
            continue
        device = parse_id(machine.text(f"{DEVICES}/{bdf}/device"))[2:]
        kind = f"{machine.text(f'{DEVICES}/{bdf}/class')[2:6]}:{device}"
        computes = maker.computes.fullmatch(kind) is not None
        if computes or (maker.torch and DISPLAY.fullmatch(kind)):
            yield OtherDevice(maker.what, bdf, f"{maker.vendor[2:]}:{device}", computes)


def _below_dev(machine: Machine) -> Iterator[OtherDevice]:
    for name in machine.names("dev"):
        for maker in OTHER_MAKERS:
            if maker.file.fullmatch(name):
                yield OtherDevice(maker.what, f"/dev/{name}", "", computes=True)
