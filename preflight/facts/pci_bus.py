"""Read the NVIDIA GPUs and the RDMA adapters on the PCI bus, and the bridges above these devices."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial

from preflight.errors import UnreadableFact
from preflight.facts.reading import first_of, gap_or, need, parse_numa_node, parse_whole
from preflight.model.facts import Gap, NvidiaPciDevice, PciDevice, PciKind
from preflight.system.machine import Machine

DEVICES = "sys/bus/pci/devices"
NVIDIA = "0x10de"
DISPLAY_CONTROLLER = "0x03"  # VGA 0x0300 and 3D 0x0302; audio, USB and NVSwitch bridges have others


def probe_nvidia_pci(machine: Machine) -> tuple[NvidiaPciDevice, ...]:
    """Return the NVIDIA GPUs on the PCI bus, in bus order, or () if the machine has no PCI bus."""
    need(machine, "sys/bus", ", so the PCI bus can't be read")
    return tuple(_read_nvidia(machine, bdf) for bdf in machine.names(DEVICES) if _is_nvidia_gpu(machine, bdf))


def _is_nvidia_gpu(machine: Machine, bdf: str) -> bool:
    if not machine.exists(f"{DEVICES}/{bdf}/vendor"):
        return False  # unplugged since the directory was listed
    return machine.text(f"{DEVICES}/{bdf}/vendor") == NVIDIA and is_display(machine.text(f"{DEVICES}/{bdf}/class"))


def _read_nvidia(machine: Machine, bdf: str) -> NvidiaPciDevice:
    device_id = parse_id(machine.text(f"{DEVICES}/{bdf}/device"))
    driver = gap_or(lambda: _read_driver(machine, bdf))
    numa_node = gap_or(lambda: parse_numa_node(machine.text(f"{DEVICES}/{bdf}/numa_node")))
    return NvidiaPciDevice(bdf, device_id, driver, numa_node)


def _read_driver(machine: Machine, bdf: str) -> str:
    if not machine.exists(f"{DEVICES}/{bdf}/driver"):
        raise UnreadableFact("no kernel driver is bound to it")
    return machine.link(f"{DEVICES}/{bdf}/driver").rpartition("/")[2]


def is_display(pci_class: str) -> bool:
    """Return whether `pci_class`, such as `0x030200`, is the class of a display controller."""
    return pci_class.startswith(DISPLAY_CONTROLLER) and len(pci_class) == len("0x030200")


def parse_id(text: str) -> str:
    """Return `text` if the text is a PCI id such as `0x2330`. Raise UnreadableFact for any other text."""
    if not re.fullmatch(r"0x[0-9a-f]{4}", text):
        raise UnreadableFact(f"{text[:40]!r} is not a PCI id")
    return text


BDF = r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]"
ROOT = re.compile(r"pci[0-9a-f]{4,8}:[0-9a-f]{2}")
GROUPS = "sys/kernel/iommu_groups"
HCAS = "sys/class/infiniband"
PLAIN = re.compile(r"[0-9]{1,3}(?:\.[0-9])?")


@dataclass(frozen=True, slots=True)
class Place:
    """The position of a device on the PCI bus, as the host bridge and the bridges above the device."""

    host_bridge: str
    parents: tuple[str, ...]


def probe_pci(machine: Machine) -> tuple[PciDevice, ...]:
    """Return the NVIDIA GPUs and the RDMA adapters in bus order, then all bridges above these devices."""
    need(machine, "sys/bus", ", so the PCI bus can't be read")
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
    found = (gap_or(partial(read_adapter_bdf, machine, name)) for name in machine.names(HCAS))
    return (bdf for bdf in found if isinstance(bdf, str))


def read_adapter_bdf(machine: Machine, name: str) -> str:
    """Return the PCI address of the RDMA device `name`.

    Raise UnreadableFact if the RDMA device is not a PCI device, such as SCIF or rxe.
    """
    link = first_of(
        lambda: machine.link(f"{HCAS}/{name}/device"),
        lambda: machine.link(f"{HCAS}/{name}").rpartition("/infiniband/")[0],
    )
    bdf = link.rpartition("/")[2].lower()
    if not re.fullmatch(BDF, bdf):
        raise UnreadableFact(f"/{HCAS}/{name}/device: it points to {link[-60:]!r}, no PCI device")
    return bdf


def read_place(machine: Machine, bdf: str) -> Place:
    """Return the position of the device at the PCI address `bdf`.

    The position is empty if the device has no link in /sys/bus.
    """
    place = gap_or(lambda: parse_place(machine.link(f"{DEVICES}/{bdf}")))
    return Place("", ()) if isinstance(place, Gap) else place


def parse_place(link: str) -> Place:
    """Return the host bridge and the bridges above a device, from `link`, the device's link target in sysfs.

    If the path has several roots (VMD, Hyper-V), the last root counts.
    """
    # An example of `link` is `../../../devices/pci0000:16/0000:16:02.0/0000:17:00.0`.
    parts = link.lower().split("/")
    last = max((i for i, part in enumerate(parts) if ROOT.fullmatch(part)), default=-1)
    if last < 0:
        return Place("", ())
    return Place(parts[last], tuple(part for part in parts[last + 1 : -1] if re.fullmatch(BDF, part)))


def bridge_kind(depth: int) -> PciKind:
    """Return the kind of the bridge that is `depth` levels below the host bridge.

    Below the root port, upstream and downstream ports of switches alternate.
    """
    if depth == 0:
        return PciKind.ROOT_PORT
    return PciKind.SWITCH_UPSTREAM if depth % 2 else PciKind.SWITCH_DOWNSTREAM


def _read_device(machine: Machine, bdf: str, kind: PciKind, place: Place) -> PciDevice:
    directory = f"{DEVICES}/{bdf}"
    is_bridge = kind not in (PciKind.GPU, PciKind.NIC)
    return PciDevice(
        bdf=bdf,
        kind=kind,
        device=gap_or(lambda: read_ids(machine, directory)),
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


def read_ids(machine: Machine, directory: str) -> str:
    """Return the vendor and device ids of a PCI function, such as `10de:2330`. `directory` is its folder in /sys."""
    vendor, device = (parse_id(machine.text(f"{directory}/{name}")) for name in ("vendor", "device"))
    return f"{vendor[2:]}:{device[2:]}"


def _group(machine: Machine, directory: str) -> str:
    if machine.exists(f"{directory}/iommu_group"):
        return machine.link(f"{directory}/iommu_group").rpartition("/")[2]
    need(machine, "sys/kernel", ", so whether an IOMMU is active is unknown")
    if machine.names(GROUPS):
        raise UnreadableFact("an IOMMU is active, but this device is in no group")
    return ""


def _group_type(machine: Machine, directory: str) -> str:
    group = _group(machine, directory)
    return machine.text(f"{GROUPS}/{group}/type") if group else ""


def parse_speed(text: str) -> float:
    """Return the speed of a link in GT/s, such as 16.0 for `16.0 GT/s PCIe` or `16 GT/s` (older kernels)."""
    number, _, unit = text.partition(" ")
    if not PLAIN.fullmatch(number) or not unit.startswith("GT/s"):
        raise UnreadableFact(f"link speed: the kernel says {text[:40]!r}")
    return float(number)


def parse_width(text: str) -> int:
    """Return the number of PCIe lanes in `text`, the content of a link width file in /sys.

    Raise UnreadableFact if the device has no lanes.
    """
    # For a device inside a root complex, the kernel writes 0 or 255.
    lanes = parse_whole(text, "link width")
    if not 0 < lanes <= 32:
        raise UnreadableFact(f"link width: the kernel says {lanes}, so there is no link")
    return lanes


def gpu_devices(devices: tuple[PciDevice, ...] | Gap) -> tuple[PciDevice, ...]:
    """Return the GPUs among the PCI devices, or () if `devices` is a Gap because the PCI bus could not be read."""
    return () if isinstance(devices, Gap) else tuple(each for each in devices if each.kind is PciKind.GPU)


UNPRIVILEGED_BYTES = 64  # what the kernel gives without CAP_SYS_ADMIN (pci-sysfs.c, pci_read_config)
EXTENDED = 0x100  # where extended capabilities begin; a conventional device has none
ACS_ID = 0x000D
SERIAL_ID = 0x0003  # a network card's holds its MAC address
MOST_CAPABILITIES = 96

# In bit order, as `lspci -vvv` names them. ReqRedir, CmpltRedir and EgressCtrl send peer traffic through the root.
CONTROLS = ("SrcValid", "TransBlk", "ReqRedir", "CmpltRedir", "UpstreamFwd", "EgressCtrl", "DirectTrans")


def parse_acs(config: bytes) -> tuple[str, ...]:
    """Return the names of the enabled ACS controls in a PCI config space, or () if the device has no ACS.

    Raise UnreadableFact if `config` is too short.
    """
    # Reading all of the config space needs root.
    if len(config) <= UNPRIVILEGED_BYTES:
        raise UnreadableFact(
            f"without root only {len(config)} bytes of config space are readable; ACS is after byte 256"
        )
    offset = _capability(config, ACS_ID)
    if offset == 0:
        return ()
    word = int.from_bytes(config[offset + 6 : offset + 8], "little")
    return tuple(name for bit, name in enumerate(CONTROLS) if word >> bit & 1)


def without_serial(config: bytes) -> bytes:
    """Return a copy of a PCI config space in which zeros replace the device serial number."""
    offset = _capability(config, SERIAL_ID)
    return config if offset == 0 else config[: offset + 4] + bytes(8) + config[offset + 12 :]


def _capability(config: bytes, identity: int) -> int:
    """Return the offset of an extended capability in config space, or 0 if the device lacks the capability."""
    offset = EXTENDED
    for _ in range(MOST_CAPABILITIES):
        header = int.from_bytes(config[offset : offset + 4], "little")
        if offset < EXTENDED or offset + 12 > len(config) or header in (0, 0xFFFFFFFF):
            return 0
        if header & 0xFFFF == identity:
            return offset
        offset = header >> 20 & 0xFFC
    return 0
