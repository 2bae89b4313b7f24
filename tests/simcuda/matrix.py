"""Hold simnccl against the real NCCL: machines x settings x versions, cell by cell.

`python -m tests.simcuda.matrix [--sample N] [--seed S] [--keep FOLDER]`: for each cell what NCCL chose on the simulated
machine beside what tests/simnccl says. `agreed`: the same; `mended`: the same since simnccl was mended, and why;
`explained`: not the same, for a reason in EXPLAINED. Ends with 1 where a cell is neither.
"""

from __future__ import annotations

import argparse
import gzip
import os
import random
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple, dataclass
from datetime import date
from pathlib import Path
from typing import Any

from preflight.model.nccl_log import NcclLog, read_nccl_log
from tests.simcuda.machine import Machine, named
from tests.simcuda.places import NCCL
from tests.simcuda.run import COLLECTIVES, netifs, transports
from tests.simcuda.run import Wiring as Real
from tests.simnccl.simlog import detail
from tests.simnccl.simmachine import SYSTEM_ERROR, Wiring, wire
from tests.simnccl.simpaths import Failure, Version, common

SAMPLE = 24
AT_ONCE = 2
LIMIT_S = 120.0
# By name: the ranks' GPUs, and what makes NCCL quicker without changing what it chooses.
MACHINES: Mapping[str, tuple[int, ...]] = {
    "h100x8": (0, 1, 2, 3),
    "l20x10": (0, 9),
    "l20x10_ens34": (6, 7, 8, 9),
    "l20x4_docker": (0, 1, 2, 3),
    "a100x4": (0, 1, 2, 3),
    "a100x4_torch26": (0, 2),
    "rtx4090x2": (0, 1),
    "pcie2-sys": (0, 1),
    "pcie4-amd": (0, 1, 2, 3),
    "pcie4-nics": (0, 1, 2, 3),
}
FEW_CHANNELS = {"h100x8": {"NCCL_MAX_NCHANNELS": "2"}}
OFF = {"NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1"}
# FIRST and LAST stand for the machine's interfaces.
SETTINGS: tuple[Mapping[str, str], ...] = (
    {},
    {"NCCL_P2P_DISABLE": "1"},
    {"NCCL_P2P_LEVEL": "SYS"},
    {"NCCL_P2P_LEVEL": "PIX"},
    {"NCCL_P2P_LEVEL": "NVL"},
    {"NCCL_SHM_DISABLE": "1"},
    OFF,
    {"NCCL_CUMEM_ENABLE": "0"},
    {"NCCL_CUMEM_HOST_ENABLE": "0"},
    {"NCCL_NET": "Socket"},
    {"NCCL_SOCKET_IFNAME": "=LAST", **OFF},
    {"NCCL_SOCKET_IFNAME": "^FIRST"},
    {"NCCL_NVLS_ENABLE": "0"},
    {"NCCL_IB_DISABLE": "1", "NCCL_SOCKET_FAMILY": "AF_INET"},
    {"NCCL_SOCKET_IFNAME": "=nothere"},
)
# The GPUs of each of two nodes, which are joined by adapters.
NODES = 2
BETWEEN: Mapping[str, tuple[int, ...]] = {"pcie4-ib": (0,), "pcie4-roce": (0, 2), "pcie4-gdr": (1, 3)}
ADAPTER_SETTINGS: tuple[Mapping[str, str], ...] = (
    {},
    {"NCCL_IB_DISABLE": "1"},
    {"NCCL_IB_DISABLE": "true"},
    {"NCCL_NET": "IB"},
    {"NCCL_IB_HCA": "mlx5"},
    {"NCCL_IB_HCA": "mlx5_1,mlx5_0"},
    {"NCCL_IB_HCA": "=mlx5_1"},
    {"NCCL_IB_HCA": "=mlx5_1:1"},
    {"NCCL_IB_HCA": "mlx5_0:2"},
    {"NCCL_IB_HCA": "^mlx5_0"},
    {"NCCL_IB_HCA": "^=mlx5_0:1"},
    {"NCCL_IB_HCA": "=mlx5"},
    {"NCCL_IB_HCA": "=mlx5_9", "NCCL_NET": "IB"},
    {"NCCL_IB_GID_INDEX": "1"},
    {"NCCL_IB_GID_INDEX": "7"},
    {"NCCL_IB_PKEY": "0"},
    {"NCCL_IB_PKEY": "3"},
    {"NCCL_NET_GDR_LEVEL": "LOC"},
    {"NCCL_NET_GDR_LEVEL": "PIX"},
    {"NCCL_NET_GDR_LEVEL": "SYS"},
    {"NCCL_NET_GDR_LEVEL": "2"},
    {"NCCL_NET_GDR_READ": "0"},
    {"NCCL_CROSS_NIC": "0"},
    {"NCCL_CROSS_NIC": "1"},
    {"NCCL_NET_DISABLE_INTRA": "1"},
)


@dataclass(frozen=True, slots=True)
class Cell:
    """One machine with one version of NCCL under one setting."""

    machine: str
    version: str
    setting: int

    @property
    def nodes(self) -> int:
        return NODES if self.machine in BETWEEN else 1

    @property
    def gpus(self) -> tuple[int, ...]:
        """Those of one node."""
        return BETWEEN[self.machine] if self.machine in BETWEEN else MACHINES[self.machine]

    @property
    def asked(self) -> Mapping[str, str]:
        return (ADAPTER_SETTINGS if self.machine in BETWEEN else SETTINGS)[self.setting]

    @property
    def numbers(self) -> Version:
        return tuple(map(int, self.version.split(".")))

    @property
    def env(self) -> dict[str, str]:
        names = [name for name, _ in netifs(named(self.machine))]
        put = {"FIRST": names[0], "LAST": names[-1]}
        return {name: re.sub("FIRST|LAST", lambda hit: put[hit[0]], value) for name, value in self.asked.items()}

    @property
    def starts(self) -> bool:
        return self.asked.get("NCCL_SOCKET_IFNAME") != "=nothere"

    def __str__(self) -> str:
        gpus = ",".join(map(str, self.gpus)) + (f" on {self.nodes} nodes" if self.nodes > 1 else "")
        return f"{self.machine}:{gpus} NCCL {self.version} {' '.join(f'{k}={v}' for k, v in self.env.items()) or '-'}"


@dataclass(frozen=True, slots=True)
class Rule:
    """Some cells, and what is known of them."""

    holds: Callable[[Cell], bool]
    reason: str


def _asks(cell: Cell, *names: str) -> bool:
    return any(name in cell.asked for name in names)


# What simnccl had wrong at first, found by this matrix. A cell may have had several.
MENDED: tuple[Rule, ...] = (
    Rule(
        lambda cell: cell.version == "2.27.5" and "=nothere" in cell.env.values(),
        "no interface is ncclInvalidUsage from 2.24 on, not from 2.28",
    ),
    Rule(
        lambda cell: cell.machine == "pcie4-nics" and not _asks(cell, "NCCL_SHM_DISABLE") and cell.starts,
        "a card beside each GPU wins inside the node too, where the way between the CPUs is slower (ncclTopoCheckNet)",
    ),
    Rule(
        lambda cell: cell.machine == "h100x8" and _asks(cell, "NCCL_SHM_DISABLE") and _asks(cell, "NCCL_P2P_DISABLE"),
        "no NVLS between GPUs that neither P2P nor SHM joins: NCCL sees them as several nodes",
    ),
    Rule(
        lambda cell: cell.machine == "h100x8" and _asks(cell, "NCCL_CUMEM_ENABLE"),
        "NVLS is not tied to cuMem (ncclNvlsInit does not ask), and only A100s read over NVLink",
    ),
    Rule(
        lambda cell: cell.machine == "h100x8" and not _asks(cell, "NCCL_P2P_DISABLE") and cell.starts,
        "only A100s read over NVLink; others write (ncclTopoCheckP2p: compute capability 8.0)",
    ),
    Rule(
        lambda cell: (
            cell.machine in ("l20x10_ens34", "l20x4_docker")
            and not _asks(cell, "NCCL_P2P_DISABLE")
            and cell.starts
            and cell.asked.get("NCCL_P2P_LEVEL", "") in ("", "PIX")
            # this NCCL takes P2P at any distance on AMD
            and (cell.machine, cell.version, "NCCL_P2P_LEVEL" in cell.env) != ("l20x10_ens34", "2.21.5", False)
        ),
        "PCIe distances are those of the PCI tree, whatever NVML calls them",
    ),
    Rule(
        lambda cell: cell.machine == "pcie4-gdr" and cell.version == "2.21.5" and not _asks(cell, "NCCL_IB_DISABLE"),
        "NCCL before 2.23 does not look for nvidia_peermem in /sys/module",
    ),
    Rule(
        lambda cell: cell.nodes > 1 and cell.asked in ({"NCCL_IB_PKEY": "3"}, {"NCCL_IB_GID_INDEX": "7"}),
        "a port refuses an index beyond its partition keys and, on RoCE, an empty one of its GIDs",
    ),
    Rule(
        lambda cell: cell.nodes > 1 and _asks(cell, "NCCL_NET_DISABLE_INTRA"),
        "NCCL_NET_DISABLE_INTRA=1 keeps the ranks of a node from the network",
    ),
    Rule(
        lambda cell: cell.machine == "pcie4-gdr" and _asks(cell, "NCCL_NET_GDR_READ", "NCCL_NET_GDR_LEVEL"),
        "each end reaches its own GPU; NCCL_NET_GDR_READ=0 is about sending only, and a level may be a number",
    ),
)
EXPLAINED: tuple[Rule, ...] = ()


def cells() -> list[Cell]:
    """Return all cells, a setting of all machines after another; then those of several nodes."""
    kinds = ((SETTINGS, MACHINES), (ADAPTER_SETTINGS, BETWEEN))
    return [
        Cell(machine, version, i)
        for settings, machines in kinds
        for i in range(len(settings))
        for machine in machines
        for version in NCCL
    ]


def sample(count: int, seed: str) -> list[Cell]:
    """Return some cells, the same for the same seed."""
    return random.Random(seed).sample(cells(), count)


def seed_of_today() -> str:
    """Return PREFLIGHT_MATRIX_SEED, else the date, so that CI comes round to all cells."""
    return os.environ.get("PREFLIGHT_MATRIX_SEED") or date.today().isoformat()


def seen(machine: Machine) -> dict[str, Any]:
    """Return the facts as the simulated CUDA shows them: the interfaces that a run has, adapters where it has some."""
    loopback = {"name": "lo", "is_up": True, "has_carrier": True, "addresses": ["127.0.0.1", "::1"]}
    there = {name for name, _ in netifs(machine)}
    real = [each for each in machine.node["netifs"] if each["name"] in there]
    facts = {**machine.node, "netifs": [loopback, *real]}
    if "ADAPTERS" not in machine.settings:
        return {**facts, "rdma": None, "hca_ports": [], "nic_paths": []}
    devices = {device["bdf"]: device for device in machine.node["pci"]}
    near = [
        {"gpu": gpu["nvml_index"], "nic": nic["name"], "level": common(devices[gpu["bdf"]], devices[nic["bdf"]])}
        for gpu in machine.gpus
        for nic in machine.node["nics"]
    ]
    rdma = {"uverbs": ["uverbs0"], "peermem": "GDR" in machine.settings, "dma_buf": None}
    return {**facts, "rdma": rdma, "nic_paths": near}


def run(cell: Cell) -> Real:
    """Let NCCL choose."""
    env = cell.env | FEW_CHANNELS.get(cell.machine, {})
    gpus = cell.gpus * cell.nodes
    return transports(named(cell.machine), cell.version, env, gpus=gpus, nodes=cell.nodes, limit_s=LIMIT_S)


def differences(cell: Cell, real: Real) -> list[str]:
    """Return in what simnccl and NCCL differ, NCCL's first."""
    code = next((code for step in ("id", "init") for code in real.results.get(step, ()) if code), 0)
    if real.timed_out:
        return ["NCCL did not end"]
    if cell.nodes > 1 and not _has_connected(cell, real):
        code = code or SYSTEM_ERROR  # whichever rank said it: others lost their peer, and 2.21 may end without a word
    try:
        said = wire({"node": seen(named(cell.machine)), "gpus": cell.gpus}, cell.env, cell.numbers, cell.nodes)
    except Failure as failure:
        return [] if failure.result == code else [f"ends with {code} / {failure.result}"]
    if code:
        return [f"ends with {code} / starts"]
    return list(_chosen(cell, real, read_nccl_log(real.log.splitlines()), said))


def _has_connected(cell: Cell, real: Real) -> bool:
    """Tell whether all ranks ended a collective well: adapters connect at the first one."""
    return list(real.results.get(COLLECTIVES[0], ())) == [0] * len(cell.gpus) * cell.nodes


def _chosen(cell: Cell, real: Real, log: NcclLog, said: Wiring) -> Iterator[str]:
    names = tuple(each.name for each in said.sockets)
    compared: tuple[tuple[str, object, object], ...] = (
        ("network", log.networks, (said.network,)),
        ("bootstrap", log.bootstrap, names[:1]),
        ("interfaces", log.socket_interfaces, () if said.network == "IB" else names),  # tried last, so not looked for
        ("cards", tuple(map(astuple, log.cards)), tuple(map(astuple, said.cards))),
        ("NVLS", real.nvls, said.nvls),
        ("any path", bool(log.paths) or log.has_nvls, True),
    )
    for what, chosen, told in compared:
        if chosen != told:
            yield f"{what} {chosen} / {told}"
    for a, b in dict.fromkeys(path.ranks for path in log.paths):
        of_both_ends = [path.name for path in log.paths if path.ranks == (a, b)]
        told = _carried(detail(cell.numbers, said.pairs[a, b], said.cumem, end) for end in ("send", "receive"))
        if (chosen := _carried(of_both_ends)) != told:
            yield f"{a}>{b} {chosen} / {told}"


def _carried(of_both_ends: Iterable[str]) -> str:
    """Leave out the number of the interface: simnccl has one ring, and it uses the first."""
    return ", ".join(sorted({re.sub(r"^(NET/\w+)/\d+", r"\1", text) for text in of_both_ends}))


def judge(cell: Cell, found: Sequence[str]) -> tuple[str, str]:
    """Return the verdict of a cell, and why."""
    if found:
        reason = next((rule.reason for rule in EXPLAINED if rule.holds(cell)), "")
        return ("explained", reason) if reason else ("UNEXPLAINED", "; ".join(found[:4]))
    reason = next((rule.reason for rule in MENDED if rule.holds(cell)), "")
    return ("mended", reason) if reason else ("agreed", "")


def hold(chosen: Sequence[Cell], say: Callable[[str], object], keep: Path | None = None) -> Counter[str]:
    """Run the cells side by side, say each one's verdict, and return the totals."""
    totals: Counter[str] = Counter()
    since = time.monotonic()
    for machine in dict.fromkeys(cell.machine for cell in chosen):
        named(machine)  # reading a capture forks, and kills what is left below this process: before there are ranks

    def one(cell: Cell) -> tuple[Cell, Real]:
        return cell, run(cell)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        for number, (cell, real) in enumerate(pool.map(one, chosen), 1):
            if keep:
                name = f"{cell.machine}-{cell.version}-{cell.setting}.log.gz"
                (keep / name).write_bytes(gzip.compress(real.log.encode()))
            verdict, why = judge(cell, differences(cell, real))
            totals[verdict] += 1
            say(f"{number}/{len(chosen)} {verdict:11} {cell}{f': {why}' if why else ''} ({real.seconds:.1f} s)")
    counted = ", ".join(f"{totals[name]} {name}" for name in ("agreed", "mended", "explained", "UNEXPLAINED"))
    say(f"{len(chosen)} cells in {time.monotonic() - since:.0f} s: {counted.lower()}")
    return totals


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def main() -> int:
    """Print the matrix."""
    parser = argparse.ArgumentParser(prog="python -m tests.simcuda.matrix", description=__doc__)
    parser.add_argument("--sample", type=int, metavar="N", help="so many cells, drawn by the seed")
    parser.add_argument("--seed", default=seed_of_today(), help="default: PREFLIGHT_MATRIX_SEED, else the date")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep each cell's log there")
    options = parser.parse_args()
    if options.sample:
        _say(f"seed {options.seed}")
    if options.keep:
        options.keep.mkdir(parents=True, exist_ok=True)
    totals = hold(sample(options.sample, options.seed) if options.sample else cells(), _say, options.keep)
    return 1 if totals["UNEXPLAINED"] else 0


if __name__ == "__main__":
    sys.exit(main())
