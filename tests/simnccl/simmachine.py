"""What NCCL chooses on a described machine: a second reading of NCCL's rules, apart from preflight's planner. Pure.

The description is the JSON of a node's facts as reports have it, with the numbers of the GPUs that the ranks have:
`{"node": {...}, "gpus": [6, 7, 8, 9]}`. Rules: NCCL's env.rst, socket.cc, paths.cc, transport.cc (facts 1.0 to 2.4).

Simplified, and so no proof of what NCCL does: rings in rank order and no trees, no external plugins, no MNNVL, no
NCCL_ALGO or PROTO; a NIC never wins over P2P or SHM inside the node.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

Environ = Mapping[str, str]
Version = tuple[int, ...]
Facts = Mapping[str, Any]

LEVELS = {"LOC": 0, "NVL": 1, "NVB": 2, "C2C": 3, "PIX": 4, "PXB": 5, "P2C": 6, "PXN": 7, "PHB": 8, "SYS": 9}
LEGACY_LEVELS = ("LOC", "PIX", "PXB", "PHB", "SYS", "SYS")
MOST_INTERFACES = 16
SYSTEM_ERROR, INTERNAL_ERROR, INVALID_USAGE, CUDA_ERROR = 2, 3, 5, 1


class Failure(Exception):
    """NCCL gives up: the source line, the text of its WARN line, and the ncclResult_t."""

    def __init__(self, source: str, text: str, result: int) -> None:
        super().__init__(text)
        self.source, self.text, self.result = source, text, result


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
    gpu_direct: bool = False

    def __str__(self) -> str:
        return f"{self.transport}/{self.medium}"


@dataclass(frozen=True, slots=True)
class Wiring:
    """Everything that NCCL chose, for all ranks."""

    sockets: tuple[Interface, ...]  # the first carries the bootstrap
    network: str  # IB | Socket
    cards: tuple[Card, ...]
    links: Mapping[tuple[int, int], Link]  # from rank to rank, along the ring
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


def wire(facts: Facts, environ: Environ, version: Version) -> Wiring:
    """Return what NCCL of this version chooses; Failure where it gives up by itself."""
    node, gpus = facts["node"], tuple(facts["gpus"])
    env = settings(node, environ)
    sockets = interfaces(node, env, version)
    if not sockets:
        raise Failure(
            "bootstrap.cc:126",
            "Bootstrap : no socket interface found",
            INVALID_USAGE if version >= (2, 28) else INTERNAL_ERROR,
        )
    network, cards = _network(node, env)
    cumem = _cumem(node, env, version)
    between = Between(node, env, version, gpus)
    ring = [(rank, (rank + 1) % len(gpus)) for rank in range(len(gpus))] if len(gpus) > 1 else []
    net = Link("NET", network)
    shm = Link("SHM", "CUMEM" if _cumem_host(node, env, version, cumem) else "FILE")
    apart = "NCCL_HOSTID" in env  # another one for each rank, or there is no use in it: every rank a node of its own
    links = {}
    for a, b in ring:
        kind = "" if apart else between.peer(gpus[a], gpus[b])
        direct = Link("NET", network, _gpu_direct(node, env, gpus[a], cards)) if network == "IB" else net
        without = direct if apart or integer(env, "NCCL_SHM_DISABLE", 0) else shm
        links[a, b] = Link("P2P", kind) if kind else without
    return Wiring(sockets, network, cards, links, _nvls(node, env, version, gpus, cumem), cumem, between.denied())


def integer(env: Environ, name: str, default: int) -> int:
    """Return what strtoll in base 0 makes of a variable; an empty one means the default, a word means 0."""
    text = env.get(name, "")
    if not text:
        return default
    found = re.match(r"\s*([+-]?)(0[xX][0-9a-fA-F]+|0[0-7]*|[1-9][0-9]*)", text, re.ASCII)
    if found is None:
        return 0
    digits = found[2]
    number = int(digits, 16 if digits[:2] in ("0x", "0X") else 8 if digits[0] == "0" else 10)
    return -number if found[1] == "-" else number


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
        if not each["is_up"] or each["has_carrier"] is False:
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


def _gpu_direct(node: Facts, env: Environ, gpu: int, cards: tuple[Card, ...]) -> bool:
    rdma = node.get("rdma") or {}
    if not (rdma.get("peermem") or rdma.get("dma_buf")):
        return False
    most = LEVELS.get(env.get("NCCL_NET_GDR_LEVEL", ""), LEVELS["PXB"])
    names = {card.name for card in cards}
    near = [each["level"] for each in node["nic_paths"] or () if each["gpu"] == gpu and each["nic"] in names]
    return any(_level(word) <= most for word in near if word)


def _level(word: str) -> int:
    """Return NCCL's distance for a word of `nvidia-smi topo -m`; NCCL has no NODE, its CPUs are NUMA nodes."""
    return LEVELS["NVL"] if word.startswith("NV") else LEVELS[{"NODE": "PHB"}.get(word, word)]


class Between:
    """How the GPUs of the ranks may reach each other directly."""

    def __init__(self, node: Facts, env: Environ, version: Version, gpus: tuple[int, ...]) -> None:
        self._gpus = gpus
        self._paths = {(each["a"], each["b"]): each["level"] for each in node["gpu_paths"] or ()}
        self._status = {(each["a"], each["b"]): each for each in node["gpu_p2p"] or ()}
        self._trusts = integer(env, "NCCL_IGNORE_DISABLED_P2P", 0) == 2
        self._most = _p2p_level(node, env, version, len(gpus))

    def peer(self, a: int, b: int) -> str:
        """Return NVL or PCI where NCCL uses P2P between two GPUs, else ""; Failure where the driver denies NVLink."""
        pair = (min(a, b), max(a, b))
        word = self._paths.get(pair) or "SYS"
        if _level(word) > self._most:
            return ""
        if self._denied(pair):
            if _level(word) == LEVELS["NVL"]:
                told = f"P2P is disabled between NVLINK connected GPUs {pair[0]} and {pair[1]}. This should not be the "
                raise Failure("graph/paths.cc:386", f"{told}case given their connectivity, and is probably due to a "
                              "hardware issue. If you still want to proceed, you can set NCCL_IGNORE_DISABLED_P2P=1.",
                              CUDA_ERROR)  # fmt: skip
            return ""
        return "NVL" if _level(word) <= LEVELS["C2C"] else "PCI"

    def denied(self) -> tuple[tuple[int, int], ...]:
        """Return the pairs within the level whose P2P the driver denies."""
        pairs = [(a, b) for a in self._gpus for b in self._gpus if a < b]
        near = [pair for pair in pairs if _level(self._paths.get(pair) or "SYS") <= self._most]
        return tuple(pair for pair in near if self._denied(pair))

    def _denied(self, pair: tuple[int, int]) -> bool:
        said = self._status.get(pair, {})
        return not self._trusts and not said.get("read") == said.get("write") == "ok"


def _p2p_level(node: Facts, env: Environ, version: Version, gpus: int) -> int:
    if integer(env, "NCCL_P2P_DISABLE", 0) == 1:
        return LEVELS["LOC"]
    asked = env.get("NCCL_P2P_LEVEL", "")
    if asked in LEVELS:
        return LEVELS[asked]
    if asked in tuple("012345"):
        return LEVELS[LEGACY_LEVELS[int(asked)]]
    system = node["system"] or {}
    is_amd = "AMD" in (system.get("cpu_model") or "")
    if version >= (2, 23):
        return LEVELS["SYS"] if is_amd and gpus <= 2 else LEVELS["PXB"]
    return LEVELS["SYS"] if is_amd else LEVELS["PXB"]


def _cuda(node: Facts) -> Version:
    """Return the newest CUDA of the driver, (0,) where that is not known."""
    return _numbers((node["driver"] or {}).get("cuda") or "0")


def _cumem(node: Facts, env: Environ, version: Version) -> bool:
    default = version >= (2, 19) and _cuda(node) >= (12, 0)
    return version >= (2, 18) and bool(integer(env, "NCCL_CUMEM_ENABLE", int(default)))


def _cumem_host(node: Facts, env: Environ, version: Version, cumem: bool) -> bool:
    default = version >= (2, 24) and _cuda(node) >= (12, 6)
    return cumem and version >= (2, 23) and bool(integer(env, "NCCL_CUMEM_HOST_ENABLE", int(default)))


def _nvls(node: Facts, env: Environ, version: Version, gpus: tuple[int, ...], cumem: bool) -> bool:
    """Tell whether NVLink SHARP is set up: Hopper or later behind NVSwitch, more than two of them, with cuMem."""
    if not integer(env, "NCCL_NVLS_ENABLE", 2) or not cumem or len(gpus) <= 2 or version < (2, 17):
        return False
    mine = [gpu for gpu in node["gpus"] or () if gpu["nvml_index"] in gpus]
    return _cuda(node) >= (12, 1) and all(
        _numbers(gpu["compute_capability"] or "0") >= (9, 0)
        and any(link["peer"] == "switch" and link["is_active"] for link in gpu["nvlinks"] or ())
        for gpu in mine
    )


def _numbers(text: str) -> Version:
    return tuple(int(part) for part in re.findall(r"\d+", text)) or (0,)
