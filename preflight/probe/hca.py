"""Read the RDMA adapters that the kernel exposes under /sys/class/infiniband, and their ports."""

from __future__ import annotations

import re
from functools import partial

from preflight.errors import UnreadableFact
from preflight.model.facts import Gap, HcaPort, Nic
from preflight.model.hca import Gid, NicKind, PhysState, PortCounter, PortState
from preflight.probe.nvidia_pci import DEVICES, parse_id
from preflight.probe.pcie import HCAS, read_adapter_bdf
from preflight.probe.reading import gap_or, parse_numa_node, parse_whole
from preflight.system.machine import Machine

# A slot that was never set, and one that has the subnet prefix only.
EMPTY_GIDS = frozenset({"0000:0000:0000:0000:0000:0000:0000:0000", "fe80:0000:0000:0000:0000:0000:0000:0000"})
EMPTY_PKEY = "0x0000"
# An index with no address ends the table in practice; RoCE ports have 256 slots, of which a handful is in use.
MOST_EMPTY_IN_A_ROW = 32
RATE = re.compile(r"([0-9]{1,5}(?:\.[0-9]{1,3})?) Gb/sec.*")
NO_ADAPTER_CLASS = "/sys/class: not there, so RDMA adapters can't be seen"


def probe_nics(machine: Machine) -> tuple[Nic, ...]:
    """Return the adapters in the order of their numbers; none where no RDMA driver is loaded."""
    return tuple(_read_nic(machine, name) for name in _adapters(machine))


def probe_hca_ports(machine: Machine) -> tuple[HcaPort, ...]:
    """Return the ports, adapter by adapter."""
    found = [(hca, port) for hca in _adapters(machine) for port in machine.names(f"{HCAS}/{hca}/ports")]
    return tuple(_read_port(machine, hca, int(port)) for hca, port in found if re.fullmatch(r"[0-9]{1,3}", port))


def _adapters(machine: Machine) -> list[str]:
    if not machine.exists("sys/class"):
        raise UnreadableFact(NO_ADAPTER_CLASS)
    return sorted(machine.names(HCAS), key=natural)


def natural(name: str) -> list[tuple[int, str]]:
    """Return a sort key by which mlx5_10 follows mlx5_9."""
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
        device=gap_or(lambda: _ids(machine, device)),
        firmware=gap_or(lambda: machine.text(f"{HCAS}/{name}/fw_ver")),
        numa_node=gap_or(lambda: parse_numa_node(machine.text(f"{device}/numa_node"))),
        netifs=gap_or(lambda: _netifs(machine, device)),
    )


def _driver(machine: Machine, device: str, bdf: str | Gap) -> str:
    place = device if machine.exists(f"{device}/driver") or isinstance(bdf, Gap) else f"{DEVICES}/{bdf}"
    return machine.link(f"{place}/driver").rpartition("/")[2]


def _ids(machine: Machine, device: str) -> str:
    vendor, model = (parse_id(machine.text(f"{device}/{name}")) for name in ("vendor", "device"))
    return f"{vendor[2:]}:{model[2:]}"


def _netifs(machine: Machine, device: str) -> tuple[str, ...]:
    if not machine.exists(device):
        raise UnreadableFact(f"/{device}: not there")
    return machine.names(f"{device}/net")


def _layers(machine: Machine, name: str) -> frozenset[str]:
    ports = machine.names(f"{HCAS}/{name}/ports")
    return frozenset(machine.text(f"{HCAS}/{name}/ports/{port}/link_layer") for port in ports)


def nic_kind(layers: frozenset[str], driver: str) -> NicKind:
    """Return what an adapter speaks, by its ports' link layer; EFA's is "Unspecified"."""
    if driver == "efa":
        return NicKind.EFA
    if layers == {"InfiniBand"}:
        return NicKind.INFINIBAND
    if layers == {"Ethernet"}:
        return NicKind.ROCE
    return NicKind.MIXED if {"InfiniBand", "Ethernet"} <= layers else NicKind.OTHER


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
    if not machine.exists(f"{directory}/gids"):
        raise UnreadableFact(f"/{directory}/gids: not there")
    found: list[Gid] = []
    empty = 0
    for index in sorted(int(name) for name in machine.names(f"{directory}/gids") if name.isdecimal()):
        gid = gap_or(partial(machine.text, f"{directory}/gids/{index}"))
        empty = empty + 1 if isinstance(gid, Gap) or gid in EMPTY_GIDS else 0
        if empty > MOST_EMPTY_IN_A_ROW:
            break
        if isinstance(gid, str) and not empty:
            found.append(
                Gid(
                    gid_index=index,
                    gid=gid,
                    type=gap_or(partial(machine.text, f"{directory}/gid_attrs/types/{index}")),
                    netif=gap_or(partial(machine.text, f"{directory}/gid_attrs/ndevs/{index}")),
                )
            )
    return tuple(found)


def _pkeys(machine: Machine, directory: str) -> tuple[str, ...]:
    if not machine.exists(f"{directory}/pkeys"):
        raise UnreadableFact(f"/{directory}/pkeys: not there")
    names = sorted((name for name in machine.names(f"{directory}/pkeys") if name.isdecimal()), key=int)
    pkeys = [gap_or(partial(machine.text, f"{directory}/pkeys/{name}")) for name in names]
    return tuple(pkey for pkey in pkeys if isinstance(pkey, str) and pkey != EMPTY_PKEY)


def _counters(machine: Machine, directory: str) -> tuple[PortCounter, ...]:
    """Return the counters of both directories; a virtual function lacks some, and some need root."""
    found: dict[str, int] = {}
    if not any(machine.exists(f"{directory}/{kind}") for kind in ("counters", "hw_counters")):
        raise UnreadableFact(f"/{directory}/counters: not there")
    for kind in ("counters", "hw_counters"):
        for name in machine.names(f"{directory}/{kind}"):
            value = gap_or(partial(_whole, machine, f"{directory}/{kind}/{name}", name))
            if isinstance(value, int) and name != "lifespan":  # how long the driver keeps values, no counter
                found.setdefault(name, value)
    return tuple(PortCounter(name, value) for name, value in sorted(found.items()))


def _whole(machine: Machine, path: str, name: str) -> int:
    return parse_whole(machine.text(path), name)


def parse_state(text: str) -> PortState:
    """Parse `4: ACTIVE`."""
    word = text.partition(": ")[2]
    if word not in {state.value for state in PortState}:
        raise UnreadableFact(f"port state: the kernel says {text[:40]!r}")
    return PortState(word)


def parse_phys_state(text: str) -> PhysState:
    """Parse `5: LinkUp`."""
    word = text.partition(": ")[2]
    if word not in {state.value for state in PhysState}:
        raise UnreadableFact(f"physical port state: the kernel says {text[:40]!r}")
    return PhysState(word)


def parse_rate(text: str) -> float:
    """Parse `400 Gb/sec (4X NDR)` into 400.0; the kernel says Gb, so gigabits."""
    match = RATE.fullmatch(text)
    if match is None:
        raise UnreadableFact(f"port rate: the kernel says {text[:40]!r}")
    return float(match[1])


def parse_lid(text: str) -> int:
    """Parse a local id, `0x1a`."""
    if not re.fullmatch(r"0x[0-9a-f]{1,8}", text):
        raise UnreadableFact(f"lid: the kernel says {text[:40]!r}")
    return int(text, 16)
