"""What NCCL chooses on a described machine: a second reading of NCCL's rules, apart from preflight's planner. Pure.

The description is the JSON of a node's facts as reports have it, with the numbers of the GPUs that the ranks have:
`{"node": {...}, "gpus": [6, 7, 8, 9]}`. Rules: NCCL's env.rst, socket.cc, paths.cc, transport.cc (facts 1.0 to 2.4).

Simplified, and so no proof of what NCCL does: rings in rank order and no trees, no external plugins, no MNNVL, no
NCCL_ALGO or PROTO. `make simcuda-matrix` holds it against the real NCCL.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import permutations

from tests.simnccl.simpaths import LEVELS, Between, Environ, Facts, Failure, Version, asked_level, integer, level

MOST_INTERFACES = 16
SYSTEM_ERROR, INTERNAL_ERROR, INVALID_USAGE = 2, 3, 5


@dataclass(frozen=True, slots=True)
class Interface:
    """An interface as getifaddrs gives it first."""

    name: str
    address: str

    @property
    def family(self) -> str:
        return "AF_INET6" if ":" in self.address else "AF_INET"


@dataclass(frozen=True, slots=True)
class Card:
    """A port that NCCL's own IB network would use."""

    name: str
    port: int
    layer: str  # IB | RoCE


@dataclass(frozen=True, slots=True)
class Link:
    """How one rank's data reaches the next one."""

    transport: str  # P2P | SHM | NET
    medium: str  # of P2P: PCI | NVL; of SHM: FILE | CUMEM; of NET: IB | Socket
    gpu_direct: bool = False  # the sender's adapter reads from the GPU
    is_received_direct: bool = False  # the receiver's writes into it
    reads: bool = False  # the receiver reads, where otherwise the sender writes: A100 over NVLink

    def __str__(self) -> str:
        return f"{self.transport}/{self.medium}"


@dataclass(frozen=True, slots=True)
class Wiring:
    """Everything that NCCL chose, for all ranks."""

    sockets: tuple[Interface, ...]  # the first carries the bootstrap
    network: str  # IB | Socket
    cards: tuple[Card, ...]
    links: Mapping[tuple[int, int], Link]  # from rank to rank, along the ring
    pairs: Mapping[tuple[int, int], Link]  # the same of any two ranks: NCCL may order its ring otherwise
    nvls: bool
    cumem: bool
    denied: tuple[tuple[int, int], ...]  # GPUs between which the driver denies P2P that the level would allow

    def signs(self, rank: int, gpu: int) -> dict[str, frozenset[str]]:
        """Return what a SIMNCCL rule may ask of this rank."""
        mine = {str(link) for pair, link in self.links.items() if rank in pair}
        return {
            "via": frozenset(mine | ({"NVLS"} if self.nvls else set())),
            "net": frozenset({self.network}),
            "netif": frozenset({self.sockets[0].name}),
            "family": frozenset({self.sockets[0].family}),
            "hca": frozenset(card.name for card in self.cards if self.network == "IB"),
            "cumem": frozenset({str(int(self.cumem))}),
            "gpu": frozenset({str(gpu)}),
        }


def settings(node: Facts, environ: Environ) -> dict[str, str]:
    """Return the variables as NCCL sees them: the environment, then the user's file, then /etc/nccl.conf."""
    found = {name: value for name, value in environ.items() if name.startswith("NCCL_")}
    for entry in node.get("nccl_conf") or ():
        if "NCCL_CONF_FILE" not in environ or entry["file"] == "/etc/nccl.conf":
            found.setdefault(entry["name"], entry["value"])
    return found


def wire(facts: Facts, environ: Environ, version: Version, nodes: int = 1) -> Wiring:
    """Return what NCCL of this version chooses on so many such nodes; Failure where it gives up by itself."""
    node, gpus = facts["node"], tuple(facts["gpus"])
    env = settings(node, environ)
    sockets = interfaces(node, env, version)
    if not sockets:
        raise Failure(
            "bootstrap.cc:126",
            "Bootstrap : no socket interface found",
            INVALID_USAGE if version >= (2, 24) else INTERNAL_ERROR,
        )
    network, cards = _network(node, env)
    cumem = _cumem(node, env, version)
    between = Between(node, env, version, gpus)
    stays_inside = integer(env, "NCCL_NET_DISABLE_INTRA", 0) == 1
    fast = {} if stays_inside else _near_cards(node, network, cards, sockets)

    def net(a: int, b: int) -> Link:
        """Return the way over the network between two GPUs, which may be on two nodes."""
        if network != "IB":
            return Link("NET", network)
        sends = _gpu_direct(node, env, version, a, cards, is_read=True)
        return Link("NET", network, sends, _gpu_direct(node, env, version, b, cards, is_read=False))

    shm = Link("SHM", "CUMEM" if _cumem_host(node, env, version, cumem) else "FILE")
    apart = "NCCL_HOSTID" in env  # another one for each rank, or there is no use in it: every rank a node of its own
    pairs = {}
    for a, b in permutations(range(len(gpus)), 2):
        alone = apart or between.card_is_faster(gpus[a], gpus[b], fast)
        kind = "" if alone else between.peer(gpus[a], gpus[b])
        without = net(gpus[a], gpus[b]) if alone or integer(env, "NCCL_SHM_DISABLE", 0) else shm
        reads = kind == "NVL" and all(_capability(node, gpus[each]) == (8, 0) for each in (a, b))
        pairs[a, b] = Link("P2P", kind, reads=reads) if kind else without
    size = len(gpus) * nodes
    if nodes > 1:  # ranks of one node as on the first; between nodes there is nothing but the network
        local = len(gpus)
        pairs = {
            (a, b): pairs[a % local, b % local] if a // local == b // local else net(gpus[a % local], gpus[b % local])
            for a, b in permutations(range(size), 2)
        }
    ring = [(rank, (rank + 1) % size) for rank in range(size)] if size > 1 else []
    links = {pair: pairs[pair] for pair in ring}
    if network == "IB" and any(link.transport == "NET" for link in links.values()):
        _connect(node, env, cards)
    joined = all(link.transport != "NET" for link in pairs.values())  # else NCCL sees several nodes
    nvls = joined and _nvls(node, env, version, gpus)
    return Wiring(sockets, network, cards, links, pairs, nvls, cumem, between.denied())


def interfaces(node: Facts, env: Environ, version: Version) -> tuple[Interface, ...]:
    """Return the interfaces that NCCL takes, the bootstrap's first; a name that was asked for is found or none is."""
    running = tuple(_running(node, env.get("NCCL_SOCKET_FAMILY", "")))
    asked = env.get("NCCL_SOCKET_IFNAME", "")
    if len(asked) > 1:  # one character is ignored
        return tuple(each for each in running if matches(asked, each.name))[:MOST_INTERFACES]
    shunned = ("docker", "lo", "virbr") if version >= (2, 28) else ("docker", "lo")
    steps = ["ib", f"^{','.join(shunned)}", *shunned]
    for step in steps:
        found = tuple(each for each in running if matches(step, each.name))
        if found:
            return found[:MOST_INTERFACES]
    return ()


def matches(asked: str, name: str, port: int = 0) -> bool:
    """Tell whether a list with NCCL's operators (`^` not, then `=` exactly, else prefixes) takes a name."""
    is_not, exactly = asked.startswith("^"), asked.removeprefix("^").startswith("=")
    words = asked.removeprefix("^").removeprefix("=").split(",")
    hit = False
    for word in filter(None, words):
        wanted, _, wanted_port = word.partition(":")
        same = name == wanted if exactly else name.startswith(wanted)
        hit = hit or (same and (not port or not wanted_port.isdigit() or int(wanted_port) == port))
    return hit is not is_not


def _running(node: Facts, family: str) -> Iterator[Interface]:
    for each in node["netifs"] or ():
        if not each["is_up"] or each.get("has_carrier") is False:
            continue
        for address in each["addresses"] or ():
            is_v6 = ":" in address
            if address != "::1" and {"AF_INET": not is_v6, "AF_INET6": is_v6}.get(family, True):
                yield Interface(each["name"], address)
                break


def _network(node: Facts, env: Environ) -> tuple[str, tuple[Card, ...]]:
    """Return the network and the cards that the IB one would have; NCCL_NET names one or init fails."""
    wanted = env.get("NCCL_NET", "").lower()
    cards = tuple(_cards(node, env)) if wanted in ("", "ib") else ()
    if (wanted == "ib" and not cards) or wanted not in ("", "ib", "socket"):
        raise Failure("plugin/net.cc:312", "Failed to initialize any NET plugin", INVALID_USAGE)
    return ("IB" if cards else "Socket"), cards


def _cards(node: Facts, env: Environ) -> Iterator[Card]:
    rdma = node.get("rdma") or {}
    if integer(env, "NCCL_IB_DISABLE", 0) or not rdma.get("uverbs"):
        return
    asked = env.get("NCCL_IB_HCA", "")
    for port in node["hca_ports"] or ():
        layer = {"InfiniBand": "IB", "Ethernet": "RoCE"}.get(port["link_layer"] or "")
        if port["state"] == "ACTIVE" and layer and (not asked or matches(asked, port["hca"], port["port"])):
            yield Card(port["hca"], port["port"], layer)


def _connect(node: Facts, env: Environ, cards: tuple[Card, ...]) -> None:
    """Raise Failure where a port refuses to connect: its table has no such partition key, or no such GID on RoCE.

    A fact that is missing refuses nothing.
    """
    names = {(card.name, card.port) for card in cards}
    key, index = integer(env, "NCCL_IB_PKEY", 0), integer(env, "NCCL_IB_GID_INDEX", -1)
    for port in (each for each in node["hca_ports"] or () if (each["hca"], each["port"]) in names):
        if port["pkeys"] and key >= len(port["pkeys"]):
            raise Failure("misc/ibvwrap.cc:301", "Call to ibv_modify_qp failed with 22 Invalid argument", SYSTEM_ERROR)
        found = {each["gid_index"] for each in port["gids"] or ()}
        if port["link_layer"] == "Ethernet" and found and index >= 0 and index not in found:
            raise Failure("misc/ibvwrap.cc:301", "Call to ibv_modify_qp failed with 61 No data available", SYSTEM_ERROR)


def _near_cards(node: Facts, network: str, cards: tuple[Card, ...], sockets: tuple[Interface, ...]) -> dict[str, float]:
    """Return the GB/s of the network's cards by PCI address, where the facts have it."""
    if network == "Socket":
        names = {each.name for each in sockets}
        known = [each for each in node["netifs"] or () if each.get("bdf") and each["name"] in names]
        return {each["bdf"]: each["speed_mbit_s"] / 8000 for each in known}
    names = {card.name for card in cards}
    places = {nic["name"]: nic["bdf"] for nic in node.get("nics") or ()}
    ports = [each for each in node["hca_ports"] or () if each["hca"] in names and places.get(each["hca"])]
    return {places[each["hca"]]: each["rate_gbit_s"] / 8 for each in ports}


def _gpu_direct(
    node: Facts, env: Environ, version: Version, gpu: int, cards: tuple[Card, ...], *, is_read: bool
) -> bool:
    """Tell whether the nearest card reaches the GPU's memory by itself (ncclTopoCheckGdr)."""
    rdma = node.get("rdma") or {}
    has_module = rdma.get("peermem") and version >= (2, 23)  # NCCL did not look in /sys/module before
    if not (has_module or rdma.get("dma_buf")):
        return False
    if is_read and not integer(env, "NCCL_NET_GDR_READ", int(_capability(node, gpu) >= (8, 0))):
        return False  # older GPUs read with NVLink or alone too, which no machine here has
    most = asked_level(env.get("NCCL_NET_GDR_LEVEL", ""), LEVELS["PXB"])
    names = {card.name for card in cards}
    near = [each["level"] for each in node["nic_paths"] or () if each["gpu"] == gpu and each["nic"] in names]
    return any(level(word) <= most for word in near if word)


def _cuda(node: Facts) -> Version:
    """Return the newest CUDA of the driver, (0,) where that is not known."""
    return _numbers((node["driver"] or {}).get("cuda") or "0")


def _cumem(node: Facts, env: Environ, version: Version) -> bool:
    """Tell whether buffers come from cuMem; up to 2.23 NCCL wants cards that can do GPUDirect RDMA with it."""
    consumer = any("GeForce" in (gpu["name"] or "") for gpu in node["gpus"] or ())
    default = version >= (2, 19) and _cuda(node) >= (12, 0) and not (consumer and version < (2, 24))
    return version >= (2, 18) and bool(integer(env, "NCCL_CUMEM_ENABLE", int(default)))


def _cumem_host(node: Facts, env: Environ, version: Version, cumem: bool) -> bool:
    default = version >= (2, 24) and _cuda(node) >= (12, 6)
    return cumem and version >= (2, 23) and bool(integer(env, "NCCL_CUMEM_HOST_ENABLE", int(default)))


def _nvls(node: Facts, env: Environ, version: Version, gpus: tuple[int, ...]) -> bool:
    """Tell whether NVLink SHARP is set up: Hopper or later behind NVSwitch, more than two of them."""
    if not integer(env, "NCCL_NVLS_ENABLE", 2) or len(gpus) <= 2 or version < (2, 17):
        return False
    mine = [gpu for gpu in node["gpus"] or () if gpu["nvml_index"] in gpus]
    return _cuda(node) >= (12, 1) and all(
        _capability(node, gpu["nvml_index"]) >= (9, 0)
        and any(link["peer"] == "switch" and link["is_active"] for link in gpu["nvlinks"] or ())
        for gpu in mine
    )


def _capability(node: Facts, number: int) -> Version:
    gpu = next(each for each in node["gpus"] if each["nvml_index"] == number)
    return _numbers(gpu["compute_capability"] or "0")


def _numbers(text: str) -> Version:
    return tuple(int(part) for part in re.findall(r"\d+", text)) or (0,)
