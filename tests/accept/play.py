"""Play a machine: real probes, plan of the GPUs, counters and judgement; the ranks' results are what its links give."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path

from preflight.check.report_builder import judged_or_not
from preflight.check.request import Request
from preflight.check.run_record import RunRecord
from preflight.errors import NotApplicable, UnreadableFact
from preflight.facts.run import probe_node
from preflight.model.collective import Collective
from preflight.model.facts import Gpu, NodeFacts, known_or
from preflight.model.gpu import P2pStatus
from preflight.model.gpu_test import Ending, GpuTest, PairTruth
from preflight.model.joint import NO_JOINT_PHASE
from preflight.model.policy import Lookback, Policy
from preflight.model.report import Report
from preflight.model.trial import CollectiveResult, TrialResult
from preflight.search.backend_choice import choose_backend
from preflight.search.gpus.link_speeds import expected_busbw, host_limits, pair_limits
from preflight.system.links import load_links
from preflight.system.machine import Json, Tree
from preflight.system.nvml_keeper import watch_xids
from preflight.trial.hardware_results import HardwareWatch
from preflight.trial.launch_result import LaunchResult
from preflight.trial.nodes.placement import Asked, find_placement
from tests.accept.machines import Machine
from tests.controls import confirmed_best
from tests.hardware import COPIES, gpu_test, host_copy, speeds
from tests.machines.fleet import flat
from tests.node_facts import result, trial
from tests.nvmlsim.simulate import LIBRARY
from tests.sysroot import Link, build

MIB = 1 << 20
DAY_S = 86400.0
SIZES = (8, MIB, 1024 * MIB)
BY_NATURE_GB_S = 20.0  # where no link tells what a collective reaches
POINTS = [(each, size) for each in (Collective.ALL_REDUCE, Collective.ALL_GATHER) for size in SIZES]
PORT = {"phys_state": "5: LinkUp", "rate": "400 Gb/sec (4X NDR)", "lid": "0x1", "sm_lid": "0x1", "pkeys/0": "0xffff"}
DRIVERS = {"Unspecified": "efa"}
SOFTWARE: dict[str, Json] = {"python": "3.11.7", "preflight": "0.1.0"}
NCCL = {"nvidia-nccl-cu12": "2.27.3"}


def tree_of(machine: Machine, root: Path) -> Tree:
    """Write a machine's files and return it, with what the rights there let preflight ask."""
    tree = flat(root, machine.gpus, "Intel(R) Xeon(R) Platinum 8480C", 128, 1024)
    if not machine.gpus.gpus:
        for name in ("nvidiactl", "nvidia-uvm"):
            (root / "dev" / name).unlink()
        build(root, {"sys/bus/pci/devices/": ""})
    for i in range(machine.nics):
        _adapter(root, i, machine)
    if machine.container:
        (root / ".dockerenv").touch()
    kernel_log = _open if machine.is_root else _closed
    build_of = machine.torch_cuda
    version = f"__version__ = '2.8.0+cu{build_of.replace('.', '')}'\ncuda: str = '{build_of}'\n"
    torch: Json = {"location": "/venv/torch", "version_file": version, "nccl_wheels": NCCL}
    return Tree(root, {**tree.questions, "kernel_log": kernel_log, "software": lambda: {**SOFTWARE, "torch": torch}})


def _open() -> Json:
    return []


def _closed() -> Json:
    raise UnreadableFact("/dev/kmsg: Operation not permitted")


def _adapter(root: Path, i: int, machine: Machine) -> None:
    name, address = f"mlx5_{i}", f"0000:{0xA0 + i:02x}:00.0"
    place = f"sys/devices/pci0000:a0/{address}"
    driver = DRIVERS.get(machine.layer, "mlx5_core")
    ports = {f"{name}:1": "4: ACTIVE"} | {key: state for key, state in machine.ports.items() if key[:-2] == name}
    device: dict[str, str | bytes | Link] = {
        "class": "0x020700", "vendor": "0x15b3", "device": "0x1021", "numa_node": "0",
        "driver": Link(f"../../../../bus/pci/drivers/{driver}"),
    }  # fmt: skip
    tree = Link(f"../../../{place.removeprefix('sys/')}")
    build(root, {f"{place}/{key}": value for key, value in device.items()})
    build(root, {f"sys/bus/pci/devices/{address}": tree, f"sys/class/infiniband/{name}/device": tree})
    build(root, {f"sys/class/infiniband_verbs/uverbs{i}/ibdev": name, f"dev/infiniband/uverbs{i}": ""})
    for key, state in ports.items():
        down = {"phys_state": "2: Polling", "sm_lid": "0x0"} if "DOWN" in state else {}
        files = {**PORT, "link_layer": machine.layer, "state": state, **down}
        files |= {} if machine.layer == "Unspecified" else {"counters/symbol_error": "0", "counters/link_downed": "0"}
        files |= {"gids/0": f"fe80:0000:0000:0000:b859:9f03:0012:{i:04x}"}
        if machine.layer == "Ethernet":
            files |= {"gids/3": "0000:0000:0000:0000:0000:ffff:0a00:0107", "gid_attrs/types/3": "RoCE v2"}
        build(root, {f"sys/class/infiniband/{name}/ports/{key[-1]}/{each}": text for each, text in files.items()})


def play(
    machine: Machine, root: Path, *trials: TrialResult, xids: tuple[str, ...] = (), is_cut_short: bool = False,
    before: Json = None,
) -> Report:  # fmt: skip
    """Return the report of `preflight check --accept` there; the default trial is healthy where no trial is given.

    `xids` are the lines that the kernel writes meanwhile; where there is a `before`, the kernel's history or what no
    history is, a policy looks back a day.
    """
    tree = tree_of(machine, root)
    policy = None if before is None else Policy("site.toml", "2026-11-22", lookback=Lookback(DAY_S, DAY_S))
    if isinstance(before, dict):
        build(root, {"sys/class/net/eno1/carrier_down_count": "1"})
        tree = Tree(root, {**tree.questions, "kernel_history": lambda: before})
    watching = HardwareWatch(tree, xids=watch_xids(str(root / LIBRARY)) if (root / LIBRARY).exists() else None)
    node, _ = probe_node(tree)
    path = choose_backend(None, None, None, None, node)
    watching.begin(path)
    gpus = path.gpus
    watching.machine = Tree(root, {**tree.questions, "kernel_log": lambda: list(xids)}) if xids else tree
    launched = LaunchResult(problem=path.blocked) if path.blocked else LaunchResult(
        trials=trials or (_healthy(machine, node, gpus, path.world_size),),
        pairs=() if is_cut_short else tuple(_pairs(node, gpus)), control=confirmed_best(trials),
        gpus=tuple(_alone(node, gpu) for gpu in gpus), started_at=time.monotonic(), ready_after_s=1.0, done=True,
    )  # fmt: skip
    run = RunRecord(
        Request(accept=True),
        {},
        time.monotonic(),
        find_placement(Asked(), {}),
        node,
        path,
        (),
        watching,
        policy,
        launch=launched,
    )
    return judged_or_not(run, NO_JOINT_PHASE)[0]


def _healthy(machine: Machine, node: NodeFacts, gpus: tuple[Gpu, ...], ranks: int) -> TrialResult:
    ways = [f"{rank}>{(rank + 1) % ranks} via {machine.transport}" for rank in range(ranks) if ranks > 1 and gpus]
    ways += ["NVLS"] if machine.has_nvls else []
    made = trial(world_size=ranks, transport=tuple(ways))
    results = tuple(_results(node, gpus, made, ranks))
    return trial(world_size=ranks, transport=tuple(ways), results=results)


def _results(node: NodeFacts, gpus: tuple[Gpu, ...], made: TrialResult, ranks: int) -> Iterator[CollectiveResult]:
    for collective, size in POINTS:
        try:
            indices = [gpu.nvml_index for gpu in gpus]
            band = expected_busbw(load_links(), node, indices, collective, size, made.transport)
            busbw_gb_s = (band.low_gb_s + band.high_gb_s) / 2
        except (NotApplicable, UnreadableFact):
            busbw_gb_s = BY_NATURE_GB_S
        factor = (2 if collective is Collective.ALL_REDUCE else 1) * (ranks - 1) / ranks
        yield result(collective, size, (max(20.0, size * factor / (busbw_gb_s * 1e3)),) * ranks)


def _pairs(node: NodeFacts, gpus: tuple[Gpu, ...]) -> Iterator[PairTruth]:
    limits = {(each.a, each.b): each.gb_s for each in pair_limits(load_links(), node, gpus)}
    said = {(each.a, each.b): each.read for each in known_or(node.gpu_p2p, ())}
    for pair in combinations([gpu.nvml_index for gpu in gpus], 2):
        is_open = said[pair] is P2pStatus.OK
        gb_s = (0.85 if is_open else 0.4) * limits.get(pair, BY_NATURE_GB_S)
        yield PairTruth(*pair, said[pair], is_open, Ending.OK, "", COPIES, speeds(gb_s), 0, 0.8)


def _alone(node: NodeFacts, gpu: Gpu) -> GpuTest:
    limits = dict(host_limits(load_links(), [gpu]))
    gb_s = 0.85 * limits.get(gpu.nvml_index, 30.0)
    copies = tuple(host_copy(way, gb_s, numa_node=known_or(gpu.numa_node, 0)) for way in ("h2d", "d2h"))
    return gpu_test(gpu.nvml_index, copies=copies)
