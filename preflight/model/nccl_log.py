"""What NCCL (2.4 to 2.30) says about itself at INFO: versions, interfaces, cards, the path of every pair, algorithms.

The one reader of these lines: trials read the transport that was really used with it, `explain` where a start stopped.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from itertools import pairwise

from preflight.model import nccl_lines as lines_of

NUMBERED_ALGORITHMS = ("TREE", "RING", "COLLNET_DIRECT", "COLLNET_CHAIN", "NVLS", "NVLS_TREE", "PAT")
NUMBERED_PROTOCOLS = ("LL", "LL128", "SIMPLE")
LIMIT = 65536  # entries of one kind; an INFO log of a thousand ranks has fewer


class Transport(str, Enum):
    """How the data of a pair of ranks travels."""

    P2P = "P2P"
    SHM = "SHM"
    NET = "NET"
    COLLNET = "COLLNET"


@dataclass(frozen=True, slots=True)
class PairPath:
    """The path of one direction of a pair; `detail` as NCCL prints it, such as `P2P/CUMEM` or `NET/IB/0/GDRDMA`."""

    source_rank: int
    target_rank: int
    transport: Transport
    detail: str
    gpu_direct: bool


class Way(str, Enum):
    """What carries the data of two ranks, the least capable first."""

    SOCKET = "NET/Socket"
    NET = "NET"  # a plug-in's network, such as AWS Libfabric
    IB = "NET/IB"
    IB_GDR = "NET/IB/GDRDMA"
    COLLNET = "COLLNET"
    SHM = "SHM"
    P2P = "P2P"


@dataclass(frozen=True, slots=True)
class PairWay:
    """What carries the data of an unordered pair; the least capable way where channels or directions differ."""

    ranks: tuple[int, int]
    way: Way
    is_mixed: bool
    details: tuple[str, ...]  # as NCCL prints them, sorted


@dataclass(frozen=True, slots=True)
class PairTransports:
    """What carried the data between all ranks of a communicator, as far as its log tells."""

    pairs: tuple[PairWay, ...]  # by rank
    has_nvls_tree: bool  # large all-reduces may go through the NVSwitch, whatever the pairs say
    algorithms: tuple[str, ...]  # "AllReduce RING", sorted; empty unless SUBSYS has TUNING

    def ways(self) -> frozenset[Way]:
        """Return every way that any pair takes."""
        return frozenset(pair.way for pair in self.pairs)


@dataclass(frozen=True, slots=True)
class Card:
    """A port that NCCL's IB transport uses."""

    name: str
    port: int
    link_layer: str


@dataclass(frozen=True, slots=True)
class Algorithm:
    """What NCCL chose for a collective of a size; the collective is empty where the version does not print it."""

    collective: str
    size_bytes: int
    algorithm: str
    protocol: str


@dataclass(frozen=True, slots=True)
class NcclLog:
    """Everything that the lines told; empty where they told nothing."""

    versions: tuple[str, ...] = ()
    bootstrap: tuple[str, ...] = ()  # interfaces
    networks: tuple[str, ...] = ()
    socket_interfaces: tuple[str, ...] = ()
    cards: tuple[Card, ...] = ()
    out_of_band: tuple[str, ...] = ()
    has_no_ib: bool = False
    paths: tuple[PairPath, ...] = ()
    collnet: tuple[tuple[int, str], ...] = ()  # ranks that hand their data to a switch, and how
    nvls: tuple[bool, ...] = ()  # what the processes said: available, not available, or both
    has_nvls_tree: bool = False
    p2p_disabled: tuple[tuple[int, int], ...] = ()
    algorithms: tuple[Algorithm, ...] = ()
    ready: int = 0  # communicators that were completed
    world_size: int = 0

    def summary(self) -> tuple[object, ...]:
        """Return what two trials must differ in before a setting can be said to have changed the transport."""
        pairs = sorted({(p.source_rank, p.target_rank, p.transport.value, p.gpu_direct) for p in self.paths})
        algorithms = sorted({(a.collective, a.algorithm) for a in self.algorithms})
        switched = sorted({rank for rank, _ in self.collnet})
        rest = (self.networks, self.socket_interfaces, self.cards, tuple(algorithms), self.has_nvls_tree)
        return (tuple(pairs), tuple(switched), *rest)


@dataclass(slots=True)
class _Builder:
    versions: dict[str, None] = field(default_factory=dict)
    bootstrap: dict[str, None] = field(default_factory=dict)
    networks: dict[str, None] = field(default_factory=dict)
    sockets: dict[str, None] = field(default_factory=dict)
    cards: dict[Card, None] = field(default_factory=dict)
    out_of_band: dict[str, None] = field(default_factory=dict)
    paths: dict[PairPath, None] = field(default_factory=dict)
    collnet: dict[tuple[int, str], None] = field(default_factory=dict)
    nvls: dict[bool, None] = field(default_factory=dict)
    p2p_disabled: dict[tuple[int, int], None] = field(default_factory=dict)
    algorithms: dict[Algorithm, None] = field(default_factory=dict)
    has_no_ib: bool = False
    has_nvls_tree: bool = False
    ready: int = 0
    world_size: int = 0


def read_nccl_log(lines: Iterable[str]) -> NcclLog:
    """Read the lines of any number of processes; what is not NCCL's is passed over."""
    found = _Builder()
    for line in lines:
        _read_start(found, line)
        _read_paths(found, line)
    return NcclLog(
        tuple(found.versions), tuple(found.bootstrap), tuple(found.networks), tuple(found.sockets), tuple(found.cards),
        tuple(found.out_of_band), found.has_no_ib, tuple(found.paths), tuple(found.collnet), tuple(found.nvls),
        found.has_nvls_tree, tuple(found.p2p_disabled), tuple(found.algorithms), found.ready, found.world_size,
    )  # fmt: skip


def transport_summary(log: NcclLog) -> tuple[str, ...]:
    """Return what carries the data, sorted: a trial whose summary equals the default's has had no effect.

    `0>1 via P2P/CUMEM` for each pair, `network IB`, `netif eth0`, `hca mlx5_0:1`, and `NVLS` where its tree was made.
    """
    found = {f"{path.source_rank}>{path.target_rank} via {path.detail}" for path in log.paths}
    found |= {f"{rank} via {detail}" for rank, detail in log.collnet}
    found |= {f"network {name}" for name in log.networks}
    found |= {f"netif {name}" for name in (*log.bootstrap, *log.socket_interfaces)}
    found |= {f"hca {card.name}:{card.port}" for card in log.cards}
    return tuple(sorted(found | ({"NVLS"} if log.has_nvls_tree else set())))


def pair_transports(log: NcclLog) -> PairTransports:
    """Return what carries the data of every pair that the log names.

    The log must be of one communicator: others number their ranks from 0 again. NCCL connects rings and trees, so most
    pairs of a large job have no path of their own. "P2P" says neither NVLink nor PCIe.
    """
    found: dict[tuple[int, int], dict[Way, set[str]]] = {}
    for path in log.paths:
        ranks = (min(path.source_rank, path.target_rank), max(path.source_rank, path.target_rank))
        found.setdefault(ranks, {}).setdefault(_way(path.detail), set()).add(path.detail)
    switched = sorted({rank for rank, _ in log.collnet})
    for ranks in pairwise(switched):  # ranks that share a switch, each with the next
        if ranks not in found:
            found[ranks] = {Way.COLLNET: {detail for rank, detail in log.collnet if rank in ranks}}
    order = list(Way)
    pairs = (
        PairWay(ranks, min(ways, key=order.index), len(ways) > 1, tuple(sorted(set().union(*ways.values()))))
        for ranks, ways in sorted(found.items())
    )
    algorithms = sorted({f"{a.collective} {a.algorithm}".strip() for a in log.algorithms})
    return PairTransports(tuple(pairs), log.has_nvls_tree, tuple(algorithms))


def _way(detail: str) -> Way:
    match _transport(detail):
        case Transport.P2P:
            return Way.P2P
        case Transport.SHM:
            return Way.SHM
        case Transport.COLLNET:
            return Way.COLLNET
        case Transport.NET:
            if detail.startswith("NET/Socket"):
                return Way.SOCKET
            # IBext, IBext_v8: NVIDIA's own plug-in for the same cards.
            is_ib = detail.startswith("NET/IB")
            return (Way.IB_GDR if "GDRDMA" in detail else Way.IB) if is_ib else Way.NET


def _read_start(found: _Builder, line: str) -> None:
    if match := lines_of.VERSION.search(line):
        _add(found.versions, match[1] + (f"+cuda{match[2]}" if match[2] else ""))
    if match := lines_of.BOOTSTRAP.search(line):
        _add(found.bootstrap, match[1])
    if match := lines_of.NETWORK.search(line):
        _add(found.networks, match[1])
    if match := lines_of.SOCKETS.search(line):
        for name in lines_of.INTERFACE.findall(match[1]):
            _add(found.sockets, name)
    if match := lines_of.CARDS.search(line):
        for name, port, layer in lines_of.CARD.findall(match[1]):
            _add(found.cards, Card(name, int(port), layer))
        if out := lines_of.OUT_OF_BAND.search(match[1]):
            _add(found.out_of_band, out[1])
    found.has_no_ib |= lines_of.NO_IB.search(line) is not None
    if match := lines_of.READY.search(line):
        found.ready += 1
        found.world_size = max(found.world_size, int(match[1]))


def _read_paths(found: _Builder, line: str) -> None:
    for source, target, detail in lines_of.PATH.findall(line):
        _add(found.paths, PairPath(int(source), int(target), _transport(detail), detail, "GDRDMA" in detail))
    for rank, detail in lines_of.COLLNET.findall(line):
        _add(found.collnet, (int(rank), detail))
    if match := lines_of.NVLS.search(line):
        _add(found.nvls, match[1] is None)
    found.has_nvls_tree |= lines_of.NVLS_TREE.search(line) is not None
    if match := lines_of.P2P_OFF.search(line):
        _add(found.p2p_disabled, (int(match[1]), int(match[2])))
    if match := lines_of.ALGORITHM.search(line):
        algorithm, protocol = _named(NUMBERED_ALGORITHMS, match[3]), _named(NUMBERED_PROTOCOLS, match[4])
        _add(found.algorithms, Algorithm(match[1] or "", int(match[2]), algorithm, protocol))


def _transport(detail: str) -> Transport:
    if detail.startswith("NET"):
        return Transport.NET
    if detail.startswith("COLLNET"):
        return Transport.COLLNET
    return Transport.SHM if detail.startswith(("SHM", "direct shared memory")) else Transport.P2P


def _named(names: tuple[str, ...], value: str) -> str:
    return names[int(value)] if value.isdigit() and int(value) < len(names) else value


def _add(kept: dict, value: object) -> None:  # type: ignore[type-arg]
    if len(kept) < LIMIT:
        kept[value] = None
