"""The INFO and WARN lines of NCCL 2.18 to 2.30 for what a simulated machine chose, and errors of known faults. Pure.

Formats from NCCL's sources by tag and from public logs (facts 1.5, 2.3): only the lines that tell what was chosen.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tests.simnccl.rules import Rule
from tests.simnccl.simmachine import INTERNAL_ERROR, SYSTEM_ERROR, Link, Wiring
from tests.simnccl.simpaths import CUDA_ERROR, Failure, Version

CHANNELS = 2
STATE = "'the operation cannot be performed in the present state'"
UNBOUND = f"Failed to bind NVLink SHARP (NVLS) Multicast memory of size 2097152 : CUDA error 401 {STATE}"
CUDA_OF = {(2, 18): "12.1", (2, 21): "12.4", (2, 26): "12.2", (2, 27): "12.9", (2, 28): "13.0", (2, 30): "13.2"}
RESULTS = {
    1: ("unhandled cuda error", "ncclUnhandledCudaError: Call to CUDA function failed."),
    2: (
        "unhandled system error",
        "ncclSystemError: System call (e.g. socket, malloc) or external library call failed or device error. ",
    ),
    3: ("internal error", "ncclInternalError: Internal check failed."),
    5: ("invalid usage", "ncclInvalidUsage: This usually reflects invalid usage of NCCL library."),
}


@dataclass(frozen=True, slots=True)
class Writer:
    """Who writes: the prefix of each line, and the version whose formats it has."""

    host: str
    pid: int
    device: int
    version: Version
    stamp: str  # "2026-11-21 22:00:00", before WARN lines since 2.26

    def info(self, text: str) -> str:
        return f"{self.host}:{self.pid}:{self.pid} [{self.device}] NCCL INFO {text}\n"

    def warn(self, failure: Failure) -> str:
        function = " (ncclInit)" if self.version >= (2, 30) else ""
        head = f"\n[{self.stamp}] " if self.version >= (2, 26) else "\n"
        return (
            f"{head}{self.host}:{self.pid}:{self.pid} [{self.device}] {failure.source}{function} "
            f"NCCL WARN {failure.text}\n"
        )


@dataclass(frozen=True, slots=True)
class Seat:
    """One rank of the communicator."""

    rank: int
    ranks: int
    gpus: tuple[int, ...]  # of all ranks
    bdf: str

    @property
    def comm(self) -> str:
        where = self.bdf.replace(":", "").replace(".", "").lstrip("0") or "0"
        return f"rank {self.rank} nranks {self.ranks} cudaDev {self.rank} nvmlDev {self.gpus[self.rank]} busId {where}"


def version_line(version: Version) -> str:
    """Return what rank 0 prints first."""
    cuda = max((known for known in CUDA_OF if known <= version), default=(2, 18))
    return f"NCCL version {'.'.join(map(str, version))}+cuda{CUDA_OF[cuda]}\n"


def set_by_environment(write: Writer, environ: dict[str, str]) -> Iterator[str]:
    """Yield a line for each variable that NCCL remarks on."""
    for name, value in sorted(environ.items()):
        if name in ("NCCL_SOCKET_IFNAME", "NCCL_NET", "NCCL_IB_HCA", "NCCL_P2P_LEVEL", "NCCL_SOCKET_FAMILY"):
            yield write.info(f"{name} set by environment to {value.removeprefix('=')}")
        elif value.strip().lstrip("-").isdigit() and name != "NCCL_RAS_ENABLE":
            yield write.info(f"{name} set by environment to {value}.")


def bootstrap(write: Writer, wiring: Wiring) -> str:
    """Return the first line that names an interface."""
    colon = "Bootstrap:" if write.version >= (2, 24) else "Bootstrap :"
    return write.info(f"{colon} Using {wiring.sockets[0].name}:{wiring.sockets[0].address}<0>")


def network(write: Writer, wiring: Wiring, ib_was_off: bool) -> Iterator[str]:
    """Yield the lines of the networks that were looked at and the one that was taken."""
    first = wiring.sockets[0]
    if wiring.cards:
        listed = " ".join(f"[{i}]{each.name}:{each.port}/{each.layer}" for i, each in enumerate(wiring.cards))
        yield write.info(f"NET/IB : Using {listed} [RO]; OOB {first.name}:{first.address}<0>")
    else:
        if not ib_was_off:
            yield write.info("NET/IB : No device found.")
        listed = " ".join(f"[{i}]{each.name}:{each.address}<0>" for i, each in enumerate(wiring.sockets))
        yield write.info(f"NET/Socket : Using {listed}")
    yield write.info(f"Using network {wiring.network}")


def start(write: Writer, seat: Seat, wiring: Wiring) -> Iterator[str]:
    """Yield what comes between the network and the end of init."""
    head = "ncclCommInitRankConfig comm" if write.version >= (2, 23) else "comm"
    yield write.info(f"{head} 0x55d0c0de0000 {seat.comm} commId 0x5eed5eed5eed5eed - Init START")
    for a, b in wiring.denied:
        yield write.info(f"P2P is disabled between connected GPUs {a} and {b}. You can repress this message with "
                         "NCCL_IGNORE_DISABLED_P2P=1.")  # fmt: skip
    yield write.info(f"NVLS multicast support is {'' if wiring.nvls else 'not '}available on dev {seat.rank}")
    if wiring.nvls and write.version < (2, 22):
        yield nvls_made(write, seat)


def complete(write: Writer, seat: Seat, wiring: Wiring) -> Iterator[str]:
    """Yield the end of init."""
    p2p = int(all(link.transport == "P2P" for link in wiring.links.values()))
    yield write.info(f"Check P2P Type isAllDirectP2p {p2p} directMode 0")
    nvls = 16 if wiring.nvls else 0
    yield write.info(f"{CHANNELS} coll channels, {CHANNELS} collnet channels, {nvls} nvls channels, "
                     f"{CHANNELS} p2p channels, {CHANNELS} p2p channels per peer")  # fmt: skip
    head = "ncclCommInitRankConfig comm" if write.version >= (2, 23) else "comm"
    yield write.info(f"{head} 0x55d0c0de0000 {seat.comm} commId 0x5eed5eed5eed5eed - Init COMPLETE")


def connections(write: Writer, seat: Seat, wiring: Wiring) -> Iterator[str]:
    """Yield this rank's side of each channel: who sends says so, and over a network who receives too."""
    for (a, b), link in wiring.links.items():
        names = f"{a}[{seat.gpus[a]}] -> {b}[{seat.gpus[b]}]"
        for channel in range(CHANNELS):
            if seat.rank == a:
                yield write.info(_channel(write.version, channel, names, "send", link, wiring.cumem))
            elif seat.rank == b and link.transport == "NET":
                yield write.info(_channel(write.version, channel, names, "receive", link, wiring.cumem))
    yield write.info("Connected all rings" + (", use ring PXN 0 GDR 1" if write.version >= (2, 25) else ""))


def nvls_made(write: Writer, seat: Seat) -> str:
    """Return the line of NVLS's buffers; a tree is connected between nodes only."""
    return write.info(f"NVLS comm 0x55d0c0de0000 headRank {seat.rank} nHeads {seat.ranks} nvlsRanks {seat.ranks} "
                      "buffSize 1048576 nvlsPerRankSize 150994944 nvlsTotalSize 603979776")  # fmt: skip


def survives(rule: Rule, version: Version) -> bool:
    """Tell whether NCCL goes on without what a rule breaks: NVLS that can't bind, from 2.27.3 to 2.28."""
    return rule.about("via") == "NVLS" and (2, 27, 3) <= version < (2, 29)


def proceeding(write: Writer) -> str:
    """Return what NCCL says then."""
    return write.info(f"{UNBOUND}. Proceeding without NVLS support.")


def _channel(version: Version, channel: int, names: str, end: str, link: Link, cumem: bool) -> str:
    number = f"{channel:02d}" if link.transport == "SHM" else f"{channel:02d}/0"
    side = f" [{end}]" if link.transport == "NET" else ""
    return f"Channel {number} : {names}{side} via {detail(version, link, cumem, end)}"


def detail(version: Version, link: Link, cumem: bool, end: str) -> str:
    """Return a path as NCCL prints it at an end: `send`, or over a network also `receive`."""
    match link.transport:
        case "P2P":
            how = "CUMEM" if cumem and version >= (2, 19) else "IPC"
            return f"P2P/{how}{'/read' if link.reads else ''}"
        case "SHM":
            return "SHM/direct" if version >= (2, 30) else "SHM/direct/direct"
        case _:
            is_direct = link.gpu_direct if end == "send" else link.is_received_direct
            return f"NET/{link.medium}/0{'/GDRDMA' if is_direct else ''}"


def takes_nvls(collective: str, size_bytes: int, wiring: Wiring) -> bool:
    """Tell whether a call goes through the switch."""
    return wiring.nvls and collective == "AllReduce" and size_bytes >= 1 << 20


def algorithm(write: Writer, collective: str, size_bytes: int, wiring: Wiring) -> str:
    """Return the TUNING line of a call, "" where the version has none or a number in its place."""
    name = "NVLS" if takes_nvls(collective, size_bytes, wiring) else "RING"
    if write.version >= (2, 24):
        return write.info(f"{collective}: {size_bytes} Bytes -> Algo {name} proto SIMPLE channel{{Lo..Hi}}={{0..1}}")
    number = {"RING": 1, "NVLS": 4}[name]
    return write.info(f"{size_bytes} Bytes -> Algo {number} proto 2 time 123.4") if write.version >= (2, 20) else ""


def failure_of(rule: Rule, wiring: Wiring, version: Version) -> Failure:
    """Return how NCCL fails for a rule `error`: by what it is about."""
    card = wiring.cards[0] if wiring.cards else None
    on = f", on dev {card.name}:{card.port}, curr state INIT, next state RTR" if card else ""
    peer = wiring.sockets[0].address
    source, text, result = {
        "IB": ("misc/ibvwrap.cc:301", f"Call to ibv_modify_qp failed with 110 Connection timed out{on}", SYSTEM_ERROR),
        "Socket": ("misc/socket.cc:567", f"socketStartConnect: Connect to {peer}<45231> failed : No route to host",
                   SYSTEM_ERROR),
        "NVLS": ("transport/nvls.cc:254", f"Cuda failure 401 {STATE}" if version < (2, 27, 3) else UNBOUND, CUDA_ERROR),
        "FILE": ("misc/shmutils.cc:87", "Error while creating shared memory segment /dev/shm/nccl-Sim123 (size "
                 "9637888), error: No space left on device (28)", SYSTEM_ERROR),
        "CUMEM": ("transport/shm.cc:590", "Cuda failure 800 'operation not permitted'", CUDA_ERROR),
        "P2P": ("transport/p2p.cc:275", "Cuda failure 217 'peer access is not supported between these two devices'",
                CUDA_ERROR),
        "": ("init.cc:1117", "the simulation was told to fail", INTERNAL_ERROR),
    }[_about(rule)]  # fmt: skip
    return Failure(source, text, result)


def _about(rule: Rule) -> str:
    transport, _, medium = rule.about("via").partition("/")
    if rule.about("hca") or rule.about("net") == "IB" or medium == "IB":
        return "IB"
    if rule.about("netif") or rule.about("family") or rule.about("net") or transport == "NET":
        return "Socket"
    if transport == "SHM" or rule.about("cumem"):
        return "CUMEM" if rule.about("cumem") or medium == "CUMEM" else "FILE"
    return transport if transport in ("P2P", "NVLS") else ""


def lost(rule: Rule, wiring: Wiring) -> Failure:
    """Return what NCCL 2.27 warns of when a card's data was never acknowledged."""
    card = rule.about("hca") or wiring.cards[0].name
    peer = wiring.sockets[0].address
    completion = f"status=12 opcode=0 len=0 vendor err 129 (Recv) hca {card}"
    return Failure("transport/net_ib.cc:2358", f"NET/IB: Got completion from peer {peer}<41017> with {completion}", 6)


def torch_message(failure: Failure, version: Version) -> str:
    """Return the text of the exception that torch raises for it."""
    short, told = RESULTS[failure.result]
    return (
        f"NCCL error in: ../torch/csrc/distributed/c10d/NCCLUtils.cpp:94, {short} (run with NCCL_DEBUG=INFO for "
        f"details), NCCL version {'.'.join(map(str, version))}\n{told}\nLast error:\n{failure.text}"
    )
