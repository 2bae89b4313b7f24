"""Facts, trials and cases that tests start from: healthy ones, in which a test changes the one thing it is about."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from statistics import median
from typing import Any

from preflight.judge.check import Case
from preflight.model.collective import Collective, algbw_gb_s, busbw_gb_s
from preflight.model.facts import (
    ContainerKind,
    DeviceNodes,
    DriverFacts,
    EnvVar,
    Gap,
    GpuPath,
    Limit,
    LimitFacts,
    NameResolution,
    Netif,
    NetifKind,
    NodeFacts,
    NumaNode,
    NvidiaPciDevice,
    Overcommit,
    ShmFacts,
    SoftwareFacts,
    SystemFacts,
    TorchFacts,
    known,
)
from preflight.model.finding import Blame, Evidence, Finding, Severity
from preflight.model.hca import RdmaFacts
from preflight.model.report import Advice
from preflight.model.transport import Carrier
from preflight.model.trial import DEFAULT, CollectiveResult, Outcome, RankEnd, RankTime, Scope, TrialResult
from tests.gpus import bdf, gpu, gpu_p2p

GIB = 1 << 30
MIB = 1 << 20
NO_CUDA = Gap("torch was built without CUDA")
NO_NVML = Gap("libnvidia-ml.so.1 was not found")


def netif(name: str = "eth0", **overrides: Any) -> Netif:
    """Return a physical interface that is up, with one IPv4 address."""
    made = Netif(
        name=name,
        index=2,
        kind=NetifKind.PHYSICAL,
        is_up=True,
        has_carrier=True,
        mtu=1500,
        speed_mbit_s=10_000,
        driver="ixgbe",
        numa_node=0,
        addresses=("10.0.0.5", "fe80::5"),
        gateways=("10.0.0.1",),
    )
    return replace(made, **overrides)


NONE = Gap("there is none")
LO_ADDRESSES = ("127.0.0.1", "::1")
LO = Netif("lo", 1, NetifKind.LOOPBACK, True, True, 65536, NONE, NONE, NONE, LO_ADDRESSES, ())
SYSTEM = SystemFacts(
    kernel="6.1.0-18-amd64",
    architecture="x86_64",
    cpu_model="Intel(R) Xeon(R) Gold 6338",
    cpu_count=32,
    cpu_affinity=tuple(range(32)),
    cgroup_cpu_limit=Limit.UNLIMITED,
    memory_total_bytes=256 * GIB,
    memory_available_bytes=250 * GIB,
    cgroup_memory_limit_bytes=Limit.UNLIMITED,
    container=ContainerKind.NONE,
    hypervisor="none",
    iommu_options=(),
    cgroup_pids_limit=Limit.UNLIMITED,
    overcommit=Overcommit.HEURISTIC,
    commit_left_bytes=100 * GIB,
    product="Supermicro SYS-821GE-TNHR",
    bios="American Megatrends 2.1 01/26/2024",
)
TORCH = TorchFacts(version="2.13.0+cpu", cuda=NO_CUDA, nccl=Gap("no NCCL wheel"), location="/venv/torch")
LIMITS = LimitFacts(memlock_bytes=8 * MIB, nofile=1024, stack_bytes=8 * MIB, nproc=127_000)


def system(**overrides: Any) -> SystemFacts:
    """Return a bare-metal Linux server's system facts."""
    return replace(SYSTEM, **overrides)


def limits(**overrides: Any) -> LimitFacts:
    """Return the limits that a stock Debian gives a login."""
    return replace(LIMITS, **overrides)


def shm(size_bytes: int = 128 * GIB, **overrides: Any) -> ShmFacts:
    """Return an empty /dev/shm."""
    return replace(ShmFacts(size_bytes, size_bytes, (), 0), **overrides)


def node(**overrides: Any) -> NodeFacts:
    """Return a healthy stock Debian server without a GPU, its name on 127.0.1.1 as the installer leaves it."""
    made = NodeFacts(
        host="node1",
        system=SYSTEM,
        name_resolution=NameResolution("node1", ("127.0.1.1",)),
        shm=shm(),
        limits=LIMITS,
        nvidia_pci=(),
        device_nodes=DeviceNodes((), Gap("the nvidia module is not loaded")),
        driver=NO_NVML,
        gpus=NO_NVML,
        gpu_paths=NO_NVML,
        gpu_p2p=NO_NVML,
        xid_lines=(),
        numa_nodes=(NumaNode(0, tuple(range(32)), 256 * GIB, (10,)),),
        netifs=(LO, netif()),
        software=SoftwareFacts("3.11.7", "0.1.0", TORCH),
        environment=(),
        nccl_conf=(),
        pci=(),
        nics=(),
        nic_paths=(),
        hca_ports=(),
        rdma=RdmaFacts((), (), Gap("no peermem module is loaded"), Gap("the nvidia module is not loaded")),
        other_devices=(),
    )
    return replace(made, **overrides)


def laptop(**overrides: Any) -> NodeFacts:
    """Return a healthy laptop: wifi, an unplugged cable, an idle docker bridge, no GPU."""
    wifi = netif("wlp3s0", index=3, kind=NetifKind.WIFI, speed_mbit_s=Gap("no speed"), addresses=("192.168.1.20",))
    unplugged = netif("enp2s0", has_carrier=False, addresses=(), gateways=())
    idle = {"has_carrier": False, "addresses": ("172.17.0.1",), "gateways": ()}
    docker = netif("docker0", index=4, kind=NetifKind.CONTAINER, **idle)
    made = node(host="laptop", netifs=(LO, unplugged, wifi, docker), shm=shm(8 * GIB), system=system(cpu_count=8))
    return replace(made, name_resolution=NameResolution("laptop", ("127.0.1.1", "192.168.1.20")), **overrides)


def gpu_node(count: int = 2, **overrides: Any) -> NodeFacts:
    """Return a healthy server with `count` GPUs, its driver and a torch with CUDA."""
    torch = TorchFacts("2.13.0+cu130", "13.0", "2.28.9", "/venv/torch")
    made = node(
        host="node1",
        name_resolution=NameResolution("node1", ("10.0.0.5",)),
        nvidia_pci=tuple(NvidiaPciDevice(bdf(i), "0x2330", "nvidia", 0) for i in range(count)),
        device_nodes=DeviceNodes(("nvidiactl", "nvidia-uvm", *(f"nvidia{i}" for i in range(count))), "580.95.05"),
        driver=DriverFacts("580.95.05", "13.0"),
        gpus=tuple(gpu(i) for i in range(count)),
        gpu_paths=tuple(GpuPath(a, b, "NV18") for a, b in combinations(range(count), 2)),
        gpu_p2p=tuple(gpu_p2p(a, b) for a, b in combinations(range(count), 2)),
        software=SoftwareFacts("3.11.7", "0.1.0", torch),
    )
    return replace(made, **overrides)


def contained(facts: NodeFacts, kind: ContainerKind = ContainerKind.DOCKER) -> NodeFacts:
    """Return the same node seen from inside a container."""
    return replace(facts, system=replace(known(facts.system), container=kind))


def env(**variables: str) -> tuple[EnvVar, ...]:
    """Return inherited variables."""
    return tuple(EnvVar(name, value) for name, value in variables.items())


def result(
    collective: Collective = Collective.ALL_REDUCE,
    size_bytes: int = MIB,
    own_us: tuple[float, ...] = (1000.0, 1000.0),
    **overrides: Any,
) -> CollectiveResult:
    """Return a verified result in which rank i took own_us[i] itself and all waited for the slowest."""
    slowest_us = max(own_us)
    made = CollectiveResult(
        collective=collective,
        size_bytes=size_bytes,
        repetitions=20,
        min_us=slowest_us * 0.95,
        median_us=slowest_us,
        p95_us=slowest_us * 1.05,
        spread=0.1,
        algbw_gb_s=algbw_gb_s(size_bytes, slowest_us / 1e6),
        busbw_gb_s=busbw_gb_s(collective, size_bytes, slowest_us / 1e6, len(own_us)),
        verified=True,
        wrong_elements=0,
        ranks=tuple(RankTime(i, own, own / _median_of_others(own_us, i)) for i, own in enumerate(own_us)),
    )
    return replace(made, **overrides)


def _median_of_others(values: tuple[float, ...], index: int) -> float:
    return median(values[:index] + values[index + 1 :] or values)


def trial(
    candidate: str = DEFAULT, outcome: Outcome = Outcome.OK, world_size: int = 2, **overrides: Any
) -> TrialResult:
    """Return a trial on `world_size` ranks; with results where it is OK, with how the ranks ended where it is not."""
    if "transport" in overrides:
        overrides["transport"] = tuple(map(Carrier.from_text, overrides["transport"]))
    is_ok = outcome is Outcome.OK
    stage = "done" if is_ok else "first"
    both = (Collective.ALL_REDUCE, Collective.ALL_GATHER)
    made = TrialResult(
        candidate=candidate,
        reason="what NCCL does by default" if candidate == DEFAULT else "a test's candidate",
        env=(),
        trial_env=(),
        unset=(),
        scope=Scope.ANYWHERE,
        outcome=outcome,
        problem="" if is_ok else f"rank 1: {outcome.value} in the first collective",
        culprits=() if is_ok else (1,),
        stages=tuple((rank, stage) for rank in range(world_size)),
        ranks=tuple(RankEnd(rank, "done" if is_ok else "error", stage, "") for rank in range(world_size)),
        world_size_reported=tuple((rank, world_size) for rank in range(world_size)),
        transport=(),
        results=tuple(result(c, s, (1000.0,) * world_size) for c in both for s in (8, MIB)) if is_ok else (),
        started_by="fork",
        duration_s=0.5,
    )
    return replace(made, **overrides)


def failed_with(detail: str, outcome: Outcome = Outcome.CRASH, **overrides: Any) -> TrialResult:
    """Return a default trial in which rank 1 ended with this error text."""
    ends = (RankEnd(0, "killed", "first", ""), RankEnd(1, "error", "first", detail))
    return trial(outcome=outcome, ranks=ends, **overrides)


def case(*trials: TrialResult, **overrides: Any) -> Case:
    """Return a run on one stock server over gloo with 2 ranks; the default trial is OK where no trial is given."""
    made = Case(nodes=(node(),), trials=trials or (trial(),), backend="gloo", world_size=2, wants_gpus=False)
    return replace(made, **overrides)


def gpu_case(*trials: TrialResult, **overrides: Any) -> Case:
    """Return a run on one healthy server with 2 GPUs over NCCL."""
    return case(*trials, **{"nodes": (gpu_node(),), "backend": "nccl", "wants_gpus": True, **overrides})


def finding(severity: Severity = Severity.FAIL, blame: Blame = Blame.HOST, **overrides: Any) -> Finding:
    """Return a finding of no particular check."""
    made = Finding(
        "a-check", blame, severity, "node1", "something is wrong", "repair it", (Evidence("x", "1", "test"),)
    )
    return replace(made, **overrides)


def advice(**overrides: Any) -> Advice:
    """Return the advice to set nothing."""
    made = Advice((), (), (), (), 600, 600, (), "the defaults are as fast as anything that was tried")
    return replace(made, **overrides)
