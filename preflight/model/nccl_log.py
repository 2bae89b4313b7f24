"""What NCCL (2.4 to 2.30) says about itself at INFO: versions, interfaces, cards, the path of every pair, algorithms.

The one reader of these lines: trials read the transport that was really used with it, `explain` where a start stopped.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum

VERSION = re.compile(r"NCCL version (\d{1,3}\.\d{1,3}(?:\.\d{1,4})?)(?:\+cuda([\d.]{1,8}))?")
BOOTSTRAP = re.compile(r"Bootstrap ?: Using (?:\[0\])?([^\s:]{1,32}):([^\s<]{1,64})")
NETWORK = re.compile(r"Using network (\S[\w /.+-]{0,40}?)\s*$")
SOCKETS = re.compile(r"NET/Socket ?: Using (?=\[)(.{1,2000})")
INTERFACE = re.compile(r"\[\d{1,3}\]([^\s:\[\]]{1,32}):")
CARDS = re.compile(r"NET/IB ?: Using (?=\[)(.{1,4000})")
CARD = re.compile(r"\[\d{1,3}\]([\w+-]{1,64}):(\d{1,3})/(IB|RoCE|SHARP|\w{1,12})")
OUT_OF_BAND = re.compile(r"OOB ([^\s:]{1,32}):")
# 2.4: `Ring 00 : 0[1] -> 1[3] via P2P/IPC`; later `Channel 00/0 : 0[1b000] -> 1[1c000] [send] via NET/IB/0/GDRDMA`
PATH = re.compile(
    r"(?:Channel|Ring|"
    r"Tree) \d{1,4}(?:/\d{1,4})? ?: (\d{1,7})(?:\[[0-9a-f]{1,16}\])? -> (\d{1,7})(?:\[[0-9a-f]{1,16}"
    r"\])?"
    r"(?: \[(send|receive)\])? via ([A-Za-z][\w /()\[\].-]{1,80})"
)
NVLS = re.compile(r"NVLS multicast support is (not )?available")
NVLS_TREE = re.compile(r"Connected NVLS tree")
NO_IB = re.compile(r"NET/IB ?: No device found")
P2P_OFF = re.compile(r"P2P is disabled between (?:NVLINK )?connected GPUs (\d{1,4}) and (\d{1,4})")
ALGORITHM = re.compile(r"(?:([A-Z][A-Za-z]{3,20}): )?(\d{1,20}) Bytes -> Algo ([A-Z0-9_]{1,20}) proto ([A-Z0-9]{1,10})")
READY = re.compile(r"n[Rr]anks (\d{1,7}).{0,200}Init COMPLETE")
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
        return (tuple(pairs), self.networks, self.socket_interfaces, self.cards, tuple(algorithms), self.has_nvls_tree)


@dataclass(slots=True)
class _Builder:
    versions: dict[str, None] = field(default_factory=dict)
    bootstrap: dict[str, None] = field(default_factory=dict)
    networks: dict[str, None] = field(default_factory=dict)
    sockets: dict[str, None] = field(default_factory=dict)
    cards: dict[Card, None] = field(default_factory=dict)
    out_of_band: dict[str, None] = field(default_factory=dict)
    paths: dict[PairPath, None] = field(default_factory=dict)
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
        tuple(found.out_of_band), found.has_no_ib, tuple(found.paths), tuple(found.nvls), found.has_nvls_tree,
        tuple(found.p2p_disabled), tuple(found.algorithms), found.ready, found.world_size,
    )  # fmt: skip


def transport_summary(log: NcclLog) -> tuple[str, ...]:
    """Return what carries the data, sorted: a trial whose summary equals the default's has had no effect.

    `0>1 via P2P/CUMEM` for each pair, `network IB`, `netif eth0`, `hca mlx5_0:1`, and `NVLS` where its tree was made.
    """
    found = {f"{path.source_rank}>{path.target_rank} via {path.detail}" for path in log.paths}
    found |= {f"network {name}" for name in log.networks}
    found |= {f"netif {name}" for name in (*log.bootstrap, *log.socket_interfaces)}
    found |= {f"hca {card.name}:{card.port}" for card in log.cards}
    return tuple(sorted(found | ({"NVLS"} if log.has_nvls_tree else set())))


def _read_start(found: _Builder, line: str) -> None:
    if match := VERSION.search(line):
        _add(found.versions, match[1] + (f"+cuda{match[2]}" if match[2] else ""))
    if match := BOOTSTRAP.search(line):
        _add(found.bootstrap, match[1])
    if match := NETWORK.search(line):
        _add(found.networks, match[1])
    if match := SOCKETS.search(line):
        for name in INTERFACE.findall(match[1]):
            _add(found.sockets, name)
    if match := CARDS.search(line):
        for name, port, layer in CARD.findall(match[1]):
            _add(found.cards, Card(name, int(port), layer))
        if out := OUT_OF_BAND.search(match[1]):
            _add(found.out_of_band, out[1])
    found.has_no_ib |= NO_IB.search(line) is not None
    if match := READY.search(line):
        found.ready += 1
        found.world_size = max(found.world_size, int(match[1]))


def _read_paths(found: _Builder, line: str) -> None:
    if match := PATH.search(line):
        detail = match[4].strip()
        _add(found.paths, PairPath(int(match[1]), int(match[2]), _transport(detail), detail, "GDRDMA" in detail))
    if match := NVLS.search(line):
        _add(found.nvls, match[1] is None)
    found.has_nvls_tree |= NVLS_TREE.search(line) is not None
    if match := P2P_OFF.search(line):
        _add(found.p2p_disabled, (int(match[1]), int(match[2])))
    if match := ALGORITHM.search(line):
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
