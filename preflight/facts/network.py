"""Read the network interfaces, and the addresses of the host's own name."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from preflight.errors import UnreadableFact
from preflight.facts.reading import answered, first_of, gap_or, need, parse_numa_node, parse_whole, read_whole
from preflight.model.facts import Gap, NameResolution, Netif, NetifKind
from preflight.system.machine import Json, Machine

T = TypeVar("T")

CLASS = "sys/class/net"
CONF = "proc/sys/net/ipv4/conf"
IFF_UP = 0x1  # linux/if.h

# linux/if_arp.h
ARPHRD_INFINIBAND = 32
ARPHRD_LOOPBACK = 772
TUNNEL_TYPES = frozenset({512, 768, 769, 776, 778, 823, 65534})  # ppp, ipip, ip6tnl, sit, gre, ip6gre, raw IP

TUNNEL_DEVTYPES = frozenset({"vxlan", "geneve", "gretap", "ip6gretap", "erspan", "wireguard", "ppp", "gtp", "bareudp"})
CONTAINER_NAME = re.compile(
    r"docker|br-[0-9a-f]{12}$|cni|flannel|cali|kube|weave|lxc|lxd|cilium|nodelocaldns|antrea|podman|crc|ovn-k8s|nerdctl"
)


@dataclass(frozen=True, slots=True)
class Marks:
    """The sysfs properties of a network interface that show its kind."""

    name: str
    arp_type: int
    devtype: str
    has_device: bool
    has_peer: bool  # iflink is another interface: that of a veth's other end
    directories: frozenset[str]


def probe_netifs(machine: Machine) -> tuple[Netif, ...]:
    """Return the network interfaces, sorted by index.

    If `machine` is only a tree of files, the addresses can't be read, and a Gap with the reason replaces the addresses.
    """
    listed = gap_or(lambda: machine.ask("interfaces"))
    if isinstance(listed, list):
        return tuple(_read_netif(machine, entry) for entry in listed)
    reason = {"unreadable": listed.reason}
    need(machine, CLASS, f"; {listed.reason}")
    found: list[Json] = [
        {"name": name, "index": _read_whole(machine, name, "ifindex"), "addresses": reason, "gateways": reason}
        for name in machine.names(CLASS)
        if machine.exists(f"{CLASS}/{name}/ifindex")  # else a plain file, or an interface that has gone
    ]
    return tuple(_read_netif(machine, entry) for entry in sorted(found, key=lambda entry: entry["index"]))


def _read_netif(machine: Machine, entry: Json) -> Netif:
    name, index = entry["name"], entry["index"]
    device = f"{CLASS}/{name}/device"
    # Where /sys shows another network namespace than ours it may hold a namesake.
    is_shown = gap_or(lambda: _read_whole(machine, name, "ifindex")) == index
    hidden = f"/{CLASS} does not show this interface, because it is in another network namespace"

    def shown(read: Callable[[], T]) -> T | Gap:
        return gap_or(read) if is_shown else Gap(hidden)

    marks = _read_marks(machine, name, index) if is_shown else Marks(name, 0, "", False, False, frozenset())
    flags = _read_flags(machine, entry) if is_shown else int(answered(entry["flags"]))
    return Netif(
        name=name,
        index=index,
        kind=netif_kind(marks),
        is_up=bool(flags & IFF_UP),
        has_carrier=shown(lambda: _read_whole(machine, name, "carrier") == 1),
        mtu=shown(lambda: _read_whole(machine, name, "mtu")),
        speed_mbit_s=shown(lambda: parse_speed(machine.text(f"{CLASS}/{name}/speed"))),
        driver=shown(lambda: _read_driver(machine, device)),
        numa_node=shown(lambda: _read_numa_node(machine, device)),
        addresses=gap_or(lambda: tuple(answered(entry["addresses"]))),
        gateways=gap_or(lambda: tuple(answered(entry["gateways"]))),
        networks=_networks(entry),
        arp_ignore=_arp_ignore(machine, name),
    )


def _read_marks(machine: Machine, name: str, index: int) -> Marks:
    there = frozenset(machine.names(f"{CLASS}/{name}"))
    uevent = gap_or(lambda: machine.text(f"{CLASS}/{name}/uevent"))
    arp_type = gap_or(lambda: _read_whole(machine, name, "type"))
    peer = gap_or(lambda: _read_whole(machine, name, "iflink"))
    return Marks(
        name=name,
        arp_type=arp_type if isinstance(arp_type, int) else 0,
        devtype=parse_devtype(uevent) if isinstance(uevent, str) else "",
        has_device="device" in there,
        has_peer=isinstance(peer, int) and peer not in (0, index),
        directories=there,
    )


def _read_flags(machine: Machine, entry: Json) -> int:
    return first_of(
        lambda: int(answered(entry.get("flags", {"unreadable": "not asked"}))),
        lambda: parse_flags(machine.text(f"{CLASS}/{entry['name']}/flags")),
    )


def _read_whole(machine: Machine, name: str, file: str) -> int:
    return read_whole(machine, f"{CLASS}/{name}/{file}")


def _read_driver(machine: Machine, device: str) -> str:
    if not machine.exists(device):
        raise UnreadableFact("no hardware device")
    return machine.link(f"{device}/driver").rpartition("/")[2]


def _read_numa_node(machine: Machine, device: str) -> int:
    """Return the NUMA node of a device.

    The device of a virtio interface has no numa_node. The node then comes from the PCI device above this device.
    """
    if not machine.exists(device):
        raise UnreadableFact("no hardware device")
    return first_of(
        lambda: parse_numa_node(machine.text(f"{device}/numa_node")),
        lambda: parse_numa_node(machine.text(f"{device}/../numa_node")),
    )


def _networks(entry: Json) -> tuple[str, ...]:
    """Return the IPv4 networks of an interface.

    Return () in a capture by a release of preflight that did not record networks.
    """
    found = entry.get("networks")
    return tuple(each for each in found if isinstance(each, str)) if isinstance(found, list) else ()


def _arp_ignore(machine: Machine, name: str) -> int:
    found = gap_or(lambda: max(read_whole(machine, f"{CONF}/{each}/arp_ignore") for each in ("all", name)))
    return -1 if isinstance(found, Gap) else found


def netif_kind(marks: Marks) -> NetifKind:  # noqa: PLR0911 - one line a kind
    """Return the kind of a network interface, from its sysfs properties (`marks`)."""
    # `lo` is the loopback interface. Other names matter only for container networks, if the interface has no device.
    if marks.arp_type == ARPHRD_LOOPBACK or marks.name == "lo":
        return NetifKind.LOOPBACK
    if "bonding" in marks.directories or marks.devtype == "bond":
        return NetifKind.BOND
    if marks.devtype == "wlan" or marks.directories & {"wireless", "phy80211"}:
        return NetifKind.WIFI
    if marks.arp_type == ARPHRD_INFINIBAND:
        return NetifKind.IPOIB
    if marks.has_device:
        return NetifKind.PHYSICAL
    if CONTAINER_NAME.match(marks.name):
        return NetifKind.CONTAINER
    return _virtual_kind(marks)


def _virtual_kind(marks: Marks) -> NetifKind:
    if "bridge" in marks.directories or marks.devtype == "bridge":
        return NetifKind.BRIDGE
    if marks.devtype == "vlan":
        return NetifKind.VLAN
    if marks.devtype in TUNNEL_DEVTYPES or "tun_flags" in marks.directories or marks.arp_type in TUNNEL_TYPES:
        return NetifKind.TUNNEL
    if marks.name.startswith("veth") or (marks.has_peer and not marks.devtype):
        return NetifKind.VETH
    return NetifKind.VIRTUAL


def parse_devtype(uevent: str) -> str:
    """Return the DEVTYPE in the text of a uevent file, or "" if the file has no DEVTYPE.

    Ethernet adapters and veth interfaces have no DEVTYPE.
    """
    return next((line.partition("=")[2] for line in uevent.splitlines() if line.startswith("DEVTYPE=")), "")


def parse_flags(text: str) -> int:
    """Return the flags of an interface as a number, from a hexadecimal text such as `0x1003`."""
    if not re.fullmatch(r"0x[0-9a-f]{1,8}", text):
        raise UnreadableFact(f"flags: {text[:40]!r} is not hexadecimal")
    return int(text, 16)


def parse_speed(text: str) -> int:
    """Return the speed of an interface in Mbit/s.

    Raise UnreadableFact if the driver does not know the speed.
    """
    # For an unknown speed, drivers write -1, old kernels write 4294967295, and some drivers write 0.
    speed = parse_whole(text, "speed")
    if speed <= 0 or speed >= 0xFFFFFFFF:
        raise UnreadableFact(f"the driver does not know the speed of the interface (the kernel says {speed})")
    return speed


def probe_name_resolution(machine: Machine) -> NameResolution:
    """Return the host's name, and the addresses of this name in the resolver's order.

    Raise UnreadableFact if the name has no address.
    """
    answer = machine.ask("host_addresses")
    return NameResolution(name=answer["name"], addresses=tuple(answer["addresses"]))
