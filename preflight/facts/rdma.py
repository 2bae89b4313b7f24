"""Read the RDMA adapters, their ports and device files, and how the adapters access GPU memory."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import TypeVar

from preflight.errors import UnreadableFact
from preflight.facts.nvidia_driver import PROC
from preflight.facts.pci_bus import DEVICES, HCAS, read_adapter_bdf, read_ids
from preflight.facts.reading import answered, first_of, gap_or, need, parse_numa_node, read_whole
from preflight.model.facts import Gap, HcaPort, Nic, RdmaFacts, known_or
from preflight.model.gap import NOT_READ
from preflight.model.hca import (
    ETHERNET,
    NOT_FORCED,
    PORT_ERRORS,
    DscpPriority,
    Gid,
    NicKind,
    PhysState,
    PortCounter,
    PortSpeeds,
    PortState,
    TrafficClasses,
)
from preflight.system.machine import Json, Machine

# A slot that was never set, and one that has the subnet prefix only.
EMPTY_GIDS = frozenset({"0000:0000:0000:0000:0000:0000:0000:0000", "fe80:0000:0000:0000:0000:0000:0000:0000"})
EMPTY_PKEY = "0x0000"
COUNTER_FOLDERS = ("counters", "hw_counters")
NO_COUNTER = "lifespan"  # a file beside them: how long the driver keeps their values
# An index with no address ends the table in practice; RoCE ports have 256 slots, of which a handful is in use.
MOST_EMPTY_IN_A_ROW = 32
S = TypeVar("S", PortState, PhysState)
RATE = re.compile(r"([0-9]{1,5}(?:\.[0-9]{1,3})?) Gb/sec.*")


def probe_nics(machine: Machine) -> tuple[Nic, ...]:
    """Return the RDMA adapters in numerical order, or () if no RDMA driver is loaded."""
    return tuple(_read_nic(machine, name) for name in _adapters(machine))


def probe_hca_ports(machine: Machine) -> tuple[HcaPort, ...]:
    """Return the ports of the RDMA adapters, sorted by adapter."""
    return tuple(_read_port(machine, hca, port) for hca, port in _ports(machine))


@dataclass(frozen=True, slots=True)
class RoceLink:
    """The traffic classes and speeds that the kernel reports for one RDMA port. Both are () for InfiniBand."""

    hca: str
    port: int
    traffic_classes: tuple[TrafficClasses, ...] | Gap
    speeds: tuple[PortSpeeds, ...] | Gap


def probe_roce_links(machine: Machine) -> tuple[RoceLink, ...]:
    """Return the traffic classes and speeds of RDMA ports, as the drivers report them.

    A driver may stall, so this probe reads nothing else.
    """
    ask = cache(machine.ask)  # an answer is of all ports, so each question is asked once, and only for RoCE
    return tuple(_read_link(machine, hca, port, ask) for hca, port in _ports(machine))


def with_links(ports: tuple[HcaPort, ...] | Gap, links: tuple[RoceLink, ...] | Gap) -> tuple[HcaPort, ...] | Gap:
    """Return the RDMA ports with their traffic classes and speeds from `links`.

    If `ports` is a Gap object (the reason for values that could not be read), return `ports`.
    """
    # If `links` is a Gap, every Ethernet port gets this Gap.
    if isinstance(ports, Gap):
        return ports
    by_port = {(each.hca, each.port): each for each in known_or(links, ())}
    reason = links if isinstance(links, Gap) else NOT_READ
    return tuple(_with_link(port, by_port.get((port.hca, port.port)), reason) for port in ports)


def _with_link(port: HcaPort, link: RoceLink | None, reason: Gap) -> HcaPort:
    if link is not None:
        return replace(port, traffic_classes=link.traffic_classes, speeds=link.speeds)
    has_none = isinstance(port.link_layer, str) and port.link_layer != ETHERNET
    return (
        replace(port, traffic_classes=(), speeds=())
        if has_none
        else replace(port, traffic_classes=reason, speeds=reason)
    )


def read_port_errors(machine: Machine) -> dict[str, dict[str, int]]:
    """Return the error counters of the RDMA ports as {port: {counter: value}}, for ports such as `mlx5_0:1`.

    Counters that could not be read are left out.
    """
    # The function is fast enough to be called before and after each test run.
    return {
        f"{hca}:{port}": _values(machine, f"{HCAS}/{hca}/ports/{port}", PORT_ERRORS.__contains__)
        for hca in machine.names(HCAS)
        for port in machine.names(f"{HCAS}/{hca}/ports")
    }


def _ports(machine: Machine) -> list[tuple[str, int]]:
    found = [(hca, port) for hca in _adapters(machine) for port in machine.names(f"{HCAS}/{hca}/ports")]
    return [(hca, int(port)) for hca, port in found if re.fullmatch(r"[0-9]{1,3}", port)]


def _adapters(machine: Machine) -> list[str]:
    need(machine, "sys/class", ", so RDMA adapters can't be read")
    return sorted(machine.names(HCAS), key=natural)


def natural(name: str) -> list[tuple[int, str]]:
    """Return a sort key for `name` that puts mlx5_10 after mlx5_9."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"([0-9]+)", name)]


def _read_nic(machine: Machine, name: str) -> Nic:
    bdf = gap_or(lambda: read_adapter_bdf(machine, name))
    device = f"{HCAS}/{name}/device"
    driver = gap_or(lambda: _driver(machine, device, bdf))
    return Nic(
        name=name,
        kind=gap_or(lambda: nic_kind(_layers(machine, name), driver if isinstance(driver, str) else "")),
        bdf=bdf,
        driver=driver,
        device=gap_or(lambda: read_ids(machine, device)),
        firmware=gap_or(lambda: machine.text(f"{HCAS}/{name}/fw_ver")),
        numa_node=gap_or(lambda: parse_numa_node(machine.text(f"{device}/numa_node"))),
        netifs=gap_or(lambda: _netifs(machine, device)),
    )


def _driver(machine: Machine, device: str, bdf: str | Gap) -> str:
    place = device if machine.exists(f"{device}/driver") or isinstance(bdf, Gap) else f"{DEVICES}/{bdf}"
    return machine.link(f"{place}/driver").rpartition("/")[2]


def _netifs(machine: Machine, device: str) -> tuple[str, ...]:
    need(machine, device)
    return machine.names(f"{device}/net")


def _layers(machine: Machine, name: str) -> frozenset[str]:
    ports = machine.names(f"{HCAS}/{name}/ports")
    return frozenset(machine.text(f"{HCAS}/{name}/ports/{port}/link_layer") for port in ports)


def nic_kind(layers: frozenset[str], driver: str) -> NicKind:
    """Return the protocol of an RDMA adapter, from its driver and the link layers of its ports."""
    if driver == "efa":
        return NicKind.EFA
    if {"InfiniBand", ETHERNET} <= layers:
        return NicKind.MIXED
    alone = {frozenset({"InfiniBand"}): NicKind.INFINIBAND, frozenset({ETHERNET}): NicKind.ROCE}
    return alone.get(layers, NicKind.OTHER)


def _read_link(machine: Machine, hca: str, port: int, ask: Callable[[str], Json]) -> RoceLink:
    directory = f"{HCAS}/{hca}/ports/{port}"
    return RoceLink(
        hca,
        port,
        gap_or(lambda: _traffic_classes(machine, hca, directory, ask)),
        gap_or(lambda: _speeds(machine, directory, ask)),
    )


def _read_port(machine: Machine, hca: str, port: int) -> HcaPort:
    directory = f"{HCAS}/{hca}/ports/{port}"
    return HcaPort(
        hca=hca,
        port=port,
        state=gap_or(lambda: parse_state(machine.text(f"{directory}/state"))),
        phys_state=gap_or(lambda: parse_phys_state(machine.text(f"{directory}/phys_state"))),
        rate_gbit_s=gap_or(lambda: parse_rate(machine.text(f"{directory}/rate"))),
        link_layer=gap_or(lambda: machine.text(f"{directory}/link_layer")),
        lid=gap_or(lambda: parse_lid(machine.text(f"{directory}/lid"))),
        sm_lid=gap_or(lambda: parse_lid(machine.text(f"{directory}/sm_lid"))),
        gids=gap_or(lambda: _gids(machine, directory)),
        pkeys=gap_or(lambda: _pkeys(machine, directory)),
        counters=gap_or(lambda: _counters(machine, directory)),
    )


def _gids(machine: Machine, directory: str) -> tuple[Gid, ...]:
    need(machine, f"{directory}/gids")
    found: list[Gid] = []
    empty = 0
    for index in _indices(machine, f"{directory}/gids"):
        gid = gap_or(partial(machine.text, f"{directory}/gids/{index}"))
        empty = empty + 1 if isinstance(gid, Gap) or gid in EMPTY_GIDS else 0
        if empty > MOST_EMPTY_IN_A_ROW:
            break
        if isinstance(gid, str) and not empty:
            attributes = (f"{directory}/gid_attrs/{name}/{index}" for name in ("types", "ndevs"))
            found.append(Gid(index, gid, *(gap_or(partial(machine.text, path)) for path in attributes)))
    return tuple(found)


def _indices(machine: Machine, directory: str) -> list[int]:
    return sorted(int(name) for name in machine.names(directory) if name.isdecimal())


def _pkeys(machine: Machine, directory: str) -> tuple[str, ...]:
    need(machine, f"{directory}/pkeys")
    pkeys = [gap_or(partial(machine.text, f"{directory}/pkeys/{i}")) for i in _indices(machine, f"{directory}/pkeys")]
    return tuple(pkey for pkey in pkeys if isinstance(pkey, str) and pkey != EMPTY_PKEY)


def _counters(machine: Machine, directory: str) -> tuple[PortCounter, ...]:
    """Return the counters in both counter directories of a port.

    A virtual function lacks some counters. Some counters can be read only by root.
    """
    if not any(machine.exists(f"{directory}/{folder}") for folder in COUNTER_FOLDERS):
        raise UnreadableFact(f"/{directory}/counters: not there")
    values = _values(machine, directory, NO_COUNTER.__ne__)
    return tuple(PortCounter(name, value) for name, value in sorted(values.items()))


def _values(machine: Machine, directory: str, is_wanted: Callable[[str], bool]) -> dict[str, int]:
    """Return {name: value} for the counters of a port that `is_wanted` accepts and that can be read."""
    found: dict[str, int] = {}
    for folder in COUNTER_FOLDERS:
        for name in filter(is_wanted, machine.names(f"{directory}/{folder}")):
            value = gap_or(partial(read_whole, machine, f"{directory}/{folder}/{name}"))
            if isinstance(value, int):
                found.setdefault(name, value)
    return found


ECN_ROLES = ("roce_np", "roce_rp")  # who notifies, and who slows down; files of NVIDIA's own driver package
FORCED = re.compile(r"Global tclass=([0-9]{1,3})")


def _traffic_classes(
    machine: Machine, hca: str, directory: str, ask: Callable[[str], Json]
) -> tuple[TrafficClasses, ...]:
    """Return the traffic classes of a RoCE port, or () for other ports.

    The traffic classes of a port are those of the port's network interface.
    """
    netif = _netif(machine, directory)
    if not netif:
        return ()
    answer = _of(netif, "traffic_classes", ask)
    found = TrafficClasses(
        pfc_priorities=tuple(answer["pfc"]),
        by_dscp=tuple(DscpPriority(*row) for row in answer["dscp"]),
        ecn_priorities=gap_or(lambda: _ecn(machine, netif)),
        forced=gap_or(lambda: _forced(machine, hca, directory.rpartition("/")[2])),
    )
    return (found,)


def _speeds(machine: Machine, directory: str, ask: Callable[[str], Json]) -> tuple[PortSpeeds, ...]:
    """Return the current speed of a RoCE port, the port's highest speed, and the highest speed of both ends.

    The highest speed of both ends is the highest speed that both ends offered. Return () for other ports.
    """
    netif = _netif(machine, directory)
    if not netif:
        return ()
    answer = _of(netif, "port_speeds", ask)
    if not answer["own"]:
        raise UnreadableFact(f"speeds of {netif}: the driver reports no speed")
    now, own, both = answer["now"], max(answer["own"]), answer["both"]
    if both is None:
        return (PortSpeeds(now, own, Gap("the ends of the link did not negotiate a speed")),)
    if both and now not in both:  # mlx5 answers with bits of an older table
        return (
            PortSpeeds(now, own, Gap("the driver's answer about the other end does not include the link's own speed")),
        )
    return (PortSpeeds(now, own, max(both, default=0)),)


def _netif(machine: Machine, directory: str) -> str:
    """Return the network interface of a RoCE port's first GID, or "" for InfiniBand and EFA."""
    if machine.text(f"{directory}/link_layer") != ETHERNET:
        return ""
    return machine.text(f"{directory}/gid_attrs/ndevs/0")  # device/net also has the interfaces of virtual functions


def _of(netif: str, question: str, ask: Callable[[str], Json]) -> Json:
    answers = ask(question)
    if netif not in answers:
        raise UnreadableFact(f"{question} of {netif}: the kernel lists no such RDMA interface here")
    return answered(answers[netif])


def _ecn(machine: Machine, netif: str) -> tuple[int, ...]:
    roles = [f"sys/class/net/{netif}/ecn/{role}/enable" for role in ECN_ROLES]
    need(machine, roles[0], ": only NVIDIA's driver package shows ECN there")
    return tuple(i for i in range(8) if all(read_whole(machine, f"{role}/{i}") == 1 for role in roles))


def _forced(machine: Machine, hca: str, port: str) -> int:
    """Return the traffic class that is forced on a port, or NOT_FORCED if no class is forced.

    A traffic class can be forced only with NVIDIA's driver package, because only this package adds the sysfs file for
    the traffic class.
    """
    path = f"{HCAS}/{hca}/tc/{port}/traffic_class"
    match = FORCED.search(machine.text(path)) if machine.exists(path) else None
    return int(match[1]) if match else NOT_FORCED


def _parse_state(kind: type[S], what: str, text: str) -> S:
    word = text.partition(": ")[2]
    if word not in {state.value for state in kind}:
        raise UnreadableFact(f"{what}: the kernel says {text[:40]!r}")
    return kind(word)


parse_state = partial(_parse_state, PortState, "port state")  # of `4: ACTIVE`
parse_phys_state = partial(_parse_state, PhysState, "physical port state")  # of `5: LinkUp`


def parse_rate(text: str) -> float:
    """Return the rate of a port in Gbit/s, such as 400.0 for the text `400 Gb/sec (4X NDR)`."""
    match = RATE.fullmatch(text)
    if match is None:
        raise UnreadableFact(f"port rate: the kernel says {text[:40]!r}")
    return float(match[1])


def parse_lid(text: str) -> int:
    """Return the local id (LID) in a hexadecimal text such as `0x1a`, as a number."""
    if not re.fullmatch(r"0x[0-9a-f]{1,8}", text):
        raise UnreadableFact(f"lid: the kernel says {text[:40]!r}")
    return int(text, 16)


VERBS = "sys/class/infiniband_verbs"
# The files that NCCL looks at (net_ib/gdr.cc): of the older out-of-tree modules and of the driver's own one.
PEERMEM = (
    "sys/module/nvidia_peermem/version",
    "sys/kernel/mm/memory_peers/nv_mem/version",
    "sys/kernel/mm/memory_peers/nv_mem_nc/version",
)
DMA_BUF_SINCE = (5, 12)  # ib_umem_dmabuf_get, Linux 5.12


def probe_rdma(machine: Machine) -> RdmaFacts:
    """Return the uverbs device files, and whether RDMA adapters can access GPU memory.

    If a value could not be read, a Gap object with the reason replaces the value.
    """
    # The access uses nvidia-peermem or dma-buf. The names of the files are always present.
    need(machine, "dev")
    return RdmaFacts(
        uverbs=tuple(name for name in machine.names("dev/infiniband") if name.startswith("uverbs")),
        uverbs_expected=gap_or(lambda: _expected(machine)),
        peermem=gap_or(lambda: _peermem(machine)),
        dma_buf=gap_or(lambda: _dma_buf(machine)),
    )


def _expected(machine: Machine) -> tuple[str, ...]:
    need(machine, "sys/class")
    return tuple(name for name in machine.names(VERBS) if name.startswith("uverbs"))


def _peermem(machine: Machine) -> str:
    present = next((path for path in PEERMEM if machine.exists(path)), None)
    if present is None:
        need(machine, "sys/module")
        raise UnreadableFact("no peermem module is loaded")
    return machine.text(present)


def _dma_buf(machine: Machine) -> bool:
    driver = machine.text(PROC)
    release = first_of(lambda: str(machine.ask("uname")["release"]), lambda: machine.text("proc/sys/kernel/osrelease"))
    return is_open_module(driver) and kernel_version(release) >= DMA_BUF_SINCE


def is_open_module(text: str) -> bool:
    """Return whether the NVIDIA driver uses the open kernel modules.

    `text` is the content of /proc/driver/nvidia/version. Only the open kernel modules export dma-bufs.
    """
    return "Open Kernel Module" in text


def kernel_version(release: str) -> tuple[int, int]:
    """Return the first two numbers of a kernel release, such as (6, 1) for `6.1.0-18-amd64`."""
    match = re.match(r"(\d{1,3})\.(\d{1,4})", release)
    if match is None:
        raise UnreadableFact(f"kernel release: {release[:40]!r}")
    return int(match[1]), int(match[2])
