"""Read the PCI tree above the GPUs and the RDMA adapters: bridges, links, ACS and the IOMMU's groups."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from preflight.errors import UnreadableFact
from preflight.model.facts import Gap, PciDevice
from preflight.model.pci import PciKind
from preflight.probe.acs import parse_acs
from preflight.probe.nvidia_pci import DEVICES, NVIDIA, is_display, parse_id
from preflight.probe.reading import first_of, gap_or, parse_numa_node, parse_whole
from preflight.system.machine import Machine

BDF = r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]"
ROOT = re.compile(r"pci[0-9a-f]{4,8}:[0-9a-f]{2}")
GROUPS = "sys/kernel/iommu_groups"
HCAS = "sys/class/infiniband"
PLAIN = re.compile(r"[0-9]{1,3}(?:\.[0-9])?")


@dataclass(frozen=True, slots=True)
class Place:
    """Where a device hangs: its host bridge, then the bridges down to it."""

    host_bridge: str
    parents: tuple[str, ...]


def probe_pci(machine: Machine) -> tuple[PciDevice, ...]:
    """Return the GPUs and the adapters in bus order, then the bridges above them."""
    if not machine.exists("sys/bus"):
        raise UnreadableFact("/sys/bus: not there, so the PCI bus can't be seen")
    kinds = {bdf: PciKind.GPU for bdf in machine.names(DEVICES) if _is_gpu(machine, bdf)}
    kinds |= dict.fromkeys(_adapters(machine), PciKind.NIC)
    leaves = [(bdf, kind, read_place(machine, bdf)) for bdf, kind in sorted(kinds.items())]
    bridges = {
        bdf: (bridge_kind(depth), Place(place.host_bridge, place.parents[:depth]))
        for _, _, place in leaves
        for depth, bdf in enumerate(place.parents)
    }
    above = [(bdf, kind, place) for bdf, (kind, place) in sorted(bridges.items())]
    return tuple(_read_device(machine, *each) for each in [*leaves, *above])


def _is_gpu(machine: Machine, bdf: str) -> bool:
    vendor = gap_or(lambda: machine.text(f"{DEVICES}/{bdf}/vendor"))
    return vendor == NVIDIA and is_display(machine.text(f"{DEVICES}/{bdf}/class"))


def _adapters(machine: Machine) -> Iterable[str]:
    for name in machine.names(HCAS):
        bdf = gap_or(lambda: read_adapter_bdf(machine, name))  # noqa: B023 - called at once
        if isinstance(bdf, str):
            yield bdf


def read_adapter_bdf(machine: Machine, name: str) -> str:
    """Return the PCI function behind an RDMA device; UnreadableFact where it is no PCI device (SCIF, rxe)."""
    link = first_of(
        lambda: machine.link(f"{HCAS}/{name}/device"),
        lambda: machine.link(f"{HCAS}/{name}").rpartition("/infiniband/")[0],
    )
    bdf = link.rpartition("/")[2].lower()
    if not re.fullmatch(BDF, bdf):
        raise UnreadableFact(f"/{HCAS}/{name}/device: it points to {link[-60:]!r}, no PCI device")
    return bdf


def read_place(machine: Machine, bdf: str) -> Place:
    """Return where the device hangs; without its link in /sys/bus it hangs on a bridge that isn't known."""
    link = gap_or(lambda: machine.link(f"{DEVICES}/{bdf}"))
    return parse_place(link) if isinstance(link, str) else Place("", ())


def parse_place(link: str) -> Place:
    """Parse `../../../devices/pci0000:16/0000:16:02.0/0000:17:00.0`; virtual roots (VMD, Hyper-V) stand further in."""
    parts = link.lower().split("/")
    roots = [i for i, part in enumerate(parts) if ROOT.fullmatch(part)]
    if not roots:
        return Place("", ())
    last = roots[-1]
    return Place(parts[last], tuple(part for part in parts[last + 1 : -1] if re.fullmatch(BDF, part)))


def bridge_kind(depth: int) -> PciKind:
    """Return what a bridge at this depth is: below the root port, up- and downstream ports of switches alternate."""
    if depth == 0:
        return PciKind.ROOT_PORT
    return PciKind.SWITCH_UPSTREAM if depth % 2 else PciKind.SWITCH_DOWNSTREAM


def _read_device(machine: Machine, bdf: str, kind: PciKind, place: Place) -> PciDevice:
    directory = f"{DEVICES}/{bdf}"
    is_bridge = kind not in (PciKind.GPU, PciKind.NIC)
    return PciDevice(
        bdf=bdf,
        kind=kind,
        device=gap_or(lambda: _ids(machine, directory)),
        host_bridge=place.host_bridge,
        parents=place.parents,
        numa_node=gap_or(lambda: parse_numa_node(machine.text(f"{directory}/numa_node"))),
        speed_gt_s=gap_or(lambda: parse_speed(machine.text(f"{directory}/current_link_speed"))),
        speed_max_gt_s=gap_or(lambda: parse_speed(machine.text(f"{directory}/max_link_speed"))),
        width=gap_or(lambda: parse_width(machine.text(f"{directory}/current_link_width"))),
        width_max=gap_or(lambda: parse_width(machine.text(f"{directory}/max_link_width"))),
        acs=gap_or(lambda: parse_acs(machine.data(f"{directory}/config"))) if is_bridge else (),
        iommu_group=gap_or(lambda: _group(machine, directory)),
        iommu_type=gap_or(lambda: _group_type(machine, directory)),
    )


def _ids(machine: Machine, directory: str) -> str:
    vendor, device = (parse_id(machine.text(f"{directory}/{name}")) for name in ("vendor", "device"))
    return f"{vendor[2:]}:{device[2:]}"


def _group(machine: Machine, directory: str) -> str:
    if not machine.exists(f"{directory}/iommu_group"):
        if not machine.exists("sys/kernel"):
            raise UnreadableFact("/sys/kernel: not there, so whether an IOMMU is active can't be told")
        if not machine.names(GROUPS):
            return ""
        raise UnreadableFact("an IOMMU is active, but this device is in no group")
    return machine.link(f"{directory}/iommu_group").rpartition("/")[2]


def _group_type(machine: Machine, directory: str) -> str:
    group = _group(machine, directory)
    return machine.text(f"{GROUPS}/{group}/type") if group else ""


def parse_speed(text: str) -> float:
    """Parse `16.0 GT/s PCIe` and the older `16 GT/s`."""
    number, _, unit = text.partition(" ")
    if not PLAIN.fullmatch(number) or not unit.startswith("GT/s"):
        raise UnreadableFact(f"link speed: the kernel says {text[:40]!r}")
    return float(number)


def parse_width(text: str) -> int:
    """Parse a link's lanes; a device that sits in a root complex has none, and the kernel says 0 or 255."""
    lanes = parse_whole(text, "link width")
    if not 0 < lanes <= 32:
        raise UnreadableFact(f"link width: the kernel says {lanes}: there is no link")
    return lanes


def gpu_devices(devices: tuple[PciDevice, ...] | Gap) -> tuple[PciDevice, ...]:
    """Return the GPUs of a PCI tree."""
    return () if isinstance(devices, Gap) else tuple(each for each in devices if each.kind is PciKind.GPU)
