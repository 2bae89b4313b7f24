"""Read from NCCL's INFO lines which transport was really used."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from preflight.model.transport import NVLS, PRINTED_PATH, WORDS, Carrier, CarrierKind, Transport
from preflight.model.units import size_text

NUMBERED_ALGORITHMS = ("TREE", "RING", "COLLNET_DIRECT", "COLLNET_CHAIN", "NVLS", "NVLS_TREE", "PAT")
NUMBERED_PROTOCOLS = ("LL", "LL128", "SIMPLE")
LIMIT = 65536  # entries of one kind; an INFO log of a thousand ranks has fewer

BOOTSTRAP = re.compile(r"Bootstrap ?: Using (?:\[0\])?([^\s:]{1,32}):([^\s<]{1,64})")
NETWORK = re.compile(r"Using network (\S[\w /.+-]{0,40}?)\s*$")
SOCKETS = re.compile(r"NET/Socket ?: Using (?=\[)(.{1,2000})")
INTERFACE = re.compile(r"\[\d{1,3}\]([^\s:\[\]]{1,32}):")
CARDS = re.compile(r"NET/IB ?: Using (?=\[)(.{1,4000})")
CARD = re.compile(r"\[\d{1,3}\]([\w+-]{1,64}):(\d{1,3})/(IB|RoCE|SHARP|\w{1,12})")

# 2.24 and newer; then 2.21 and older. Names of one plugin that NCCL tried, blanks between them.
NOT_LOADED = re.compile(
    r"\b([A-Z]{2,10})/Plugin: (?:Could not find: ?|[^\n']{0,300}All attempts to load ')([\w./+ -]{1,1000})"
)
TRIED_UNASKED = re.compile(r"libnccl-[a-z]{1,10}\.so")

# CollNet has no peer: a rank hands its data to the switch. `Coll 00 : 3 [send] via` up to 2.4, `CollNet 00/0 :` later.
COLLNET = re.compile(
    rf"Coll(?:Net)? \d{{1,4}}(?:/\d{{1,4}})? : (\d{{1,7}}) \[(?:send|receive)\] via ({WORDS[Transport.COLLNET]})"
)

# On one node no tree is connected from 2.20 on; the buffers are made by the start up to 2.21, later by the first use.
NVLS_MADE = re.compile(r"Connected NVLS tree|NVLS comm 0x[0-9a-f]{1,16} headRank \d")
ALGORITHM = re.compile(r"(?:([A-Z][A-Za-z]{3,20}): )?(\d{1,20}) Bytes -> Algo ([A-Z0-9_]{1,20}) proto ([A-Z0-9]{1,10})")


@dataclass(frozen=True, slots=True)
class Card:
    """A port of an RDMA adapter that NCCL's IB transport uses."""

    name: str
    port: int
    link_layer: str


@dataclass(frozen=True, slots=True)
class Algorithm:
    """The algorithm and protocol that NCCL chose for a collective of one size.

    `collective` is empty if the NCCL version does not print it.
    """

    collective: str
    size_bytes: int
    algorithm: str
    protocol: str


@dataclass(frozen=True, slots=True)
class NcclLog:
    """The contents of NCCL's INFO lines, without repetitions. A field is empty if no line has its value."""

    bootstrap: tuple[str, ...] = ()  # interfaces
    networks: tuple[str, ...] = ()
    socket_interfaces: tuple[str, ...] = ()
    cards: tuple[Card, ...] = ()
    paths: tuple[Carrier, ...] = ()  # between pairs of ranks
    collnet: tuple[tuple[int, str], ...] = ()  # ranks that hand their data to a switch, and the words after "via"
    algorithms: tuple[Algorithm, ...] = ()
    not_loaded: tuple[Carrier, ...] = ()  # plugins that were requested but not loaded
    has_nvls: bool = False

    def carriers(self) -> tuple[Carrier, ...]:
        """Return the paths, networks, interfaces and ports that NCCL used, sorted by text.

        The result includes NVLS, and plugins that were requested but not loaded.
        """
        found = {*self.paths, *(Carrier(CarrierKind.PATH, detail, (rank,)) for rank, detail in self.collnet)}
        found |= {Carrier(CarrierKind.NETWORK, name) for name in self.networks}
        found |= {Carrier(CarrierKind.NETIF, name) for name in (*self.bootstrap, *self.socket_interfaces)}
        found |= {Carrier(CarrierKind.HCA, f"{card.name}:{card.port}") for card in self.cards}
        found |= set(self.not_loaded)
        return tuple(sorted(found | ({NVLS} if self.has_nvls else set()), key=lambda carrier: carrier.text))

    def algorithm_carriers(self) -> tuple[Carrier, ...]:
        """Return the algorithm for each collective and size, such as `AllReduce 32 MiB RING/SIMPLE`."""
        names = {
            f"{each.collective or 'collective'} {size_text(each.size_bytes)} {each.algorithm}/{each.protocol}"
            for each in self.algorithms
        }
        return tuple(Carrier(CarrierKind.ALGORITHM, name) for name in sorted(names))


def read_nccl_log(lines: Iterable[str]) -> NcclLog:
    """Return the contents of NCCL's lines from any number of processes. Other lines are ignored."""
    found: defaultdict[str, dict[Any, None]] = defaultdict(dict)  # by field; a dict keeps the order of the lines
    has_nvls = False
    for line in lines:
        for name, value in (*_start(line), *_paths(line)):
            if len(found[name]) < LIMIT:
                found[name][value] = None
        has_nvls |= NVLS_MADE.search(line) is not None
    return NcclLog(has_nvls=has_nvls, **{name: tuple(values) for name, values in found.items()})


def _start(line: str) -> Iterable[tuple[str, object]]:
    if match := BOOTSTRAP.search(line):
        yield "bootstrap", match[1]
    if match := NETWORK.search(line):
        yield "networks", match[1]
    if match := SOCKETS.search(line):
        for name in INTERFACE.findall(match[1]):
            yield "socket_interfaces", name
    if match := NOT_LOADED.search(line):
        names = match[2].partition(". ")[0].rstrip(".").split()
        asked = [name for name in names if not TRIED_UNASKED.fullmatch(name)]
        if asked:
            yield "not_loaded", Carrier(CarrierKind.NOT_LOADED, f"{match[1]} {asked[0]}")
    if match := CARDS.search(line):
        for name, port, layer in CARD.findall(match[1]):
            yield "cards", Card(name, int(port), layer)


def _paths(line: str) -> Iterable[tuple[str, object]]:
    for source, target, detail in PRINTED_PATH.findall(line):
        yield "paths", Carrier(CarrierKind.PATH, detail, (int(source), int(target)))
    for rank, detail in COLLNET.findall(line):
        yield "collnet", (int(rank), detail)
    if match := ALGORITHM.search(line):
        algorithm, protocol = _named(NUMBERED_ALGORITHMS, match[3]), _named(NUMBERED_PROTOCOLS, match[4])
        yield "algorithms", Algorithm(match[1] or "", int(match[2]), algorithm, protocol)


def _named(names: tuple[str, ...], value: str) -> str:
    return names[int(value)] if value.isdigit() and int(value) < len(names) else value
