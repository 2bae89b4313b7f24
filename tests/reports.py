"""Builders of reports and their parts: a sound default that each test changes in what it is about."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from preflight.model.collective import Collective, algbw_gb_s, busbw_gb_s
from preflight.model.facts import (
    ContainerKind,
    DeviceNodes,
    DriverFacts,
    Gap,
    Limit,
    LimitFacts,
    NameResolution,
    Netif,
    NetifKind,
    NodeFacts,
    NumaNode,
    Overcommit,
    ShmFacts,
    SoftwareFacts,
    SystemFacts,
    TorchFacts,
)
from preflight.model.hca import RdmaFacts
from preflight.model.report import SCHEMA_VERSION, Advice, Report, Verdict
from preflight.model.run_spec import Duel, DuelTurn
from preflight.model.transport import Carrier
from preflight.model.trial import DEFAULT, CollectiveResult, Outcome, Scope, TrialResult

MIB = 1 << 20
NO_NVML = Gap("libnvidia-ml.so.1: not there")
POINTS = ((Collective.ALL_REDUCE, MIB), (Collective.ALL_GATHER, MIB))


def node_facts(**changes: Any) -> NodeFacts:
    """Return a small CPU machine with two interfaces and no GPU."""
    facts = NodeFacts(
        host="n1",
        system=SystemFacts(
            kernel="6.8.0-45-generic",
            architecture="x86_64",
            cpu_model="AMD EPYC 7763 64-Core Processor",
            cpu_count=4,
            cpu_affinity=(0, 1, 2, 3),
            cgroup_cpu_limit=2.0,
            memory_total_bytes=16 << 30,
            memory_available_bytes=11 << 30,
            cgroup_memory_limit_bytes=Limit.UNLIMITED,
            container=ContainerKind.DOCKER,
            hypervisor="kvm",
            iommu_options=(),
            cgroup_pids_limit=Limit.UNLIMITED,
            overcommit=Overcommit.HEURISTIC,
            commit_left_bytes=8 << 30,
            product="Supermicro AS-4125GS-TNRT",
            bios="American Megatrends 1.4 07/13/2023",
        ),
        name_resolution=NameResolution("n1", ("127.0.1.1",)),
        shm=ShmFacts(64 * MIB, 60 * MIB, ("nccl-a1B2c3",), 9 * MIB),
        limits=LimitFacts(8 * MIB, 1024, 8 * MIB, Limit.UNLIMITED),
        nvidia_pci=(),
        device_nodes=DeviceNodes((), Gap("/proc/driver/nvidia/version: not there")),
        driver=DriverFacts(NO_NVML, NO_NVML),
        gpus=NO_NVML,
        gpu_paths=NO_NVML,
        gpu_p2p=NO_NVML,
        xid_lines=(),
        numa_nodes=(NumaNode(0, (0, 1, 2, 3), 16 << 30, (10,)),),
        netifs=(netif("lo", 1, NetifKind.LOOPBACK, ("127.0.0.1",)), netif("eth0", 2, NetifKind.VETH, ("10.0.0.7",))),
        software=SoftwareFacts("3.11.9", "0.1.0", TorchFacts("2.13.0+cpu", Gap("a CPU build"), NO_NVML, "/v/torch")),
        environment=(),
        nccl_conf=(),
        pci=(),
        nics=(),
        nic_paths=(),
        hca_ports=(),
        rdma=RdmaFacts((), (), NO_NVML, NO_NVML),
        other_devices=(),
    )
    return dataclasses.replace(facts, **changes)


def netif(name: str, index: int, kind: NetifKind, addresses: tuple[str, ...]) -> Netif:
    """Return an interface that is up, without a device behind it."""
    no_speed = Gap(f"/sys/class/net/{name}/speed: invalid argument")
    return Netif(name, index, kind, True, True, 1500, no_speed, Gap("no driver"), Gap("no device"), addresses, ())


def timed(
    collective: Collective = Collective.ALL_REDUCE,
    size_bytes: int = MIB,
    median_us: float = 800.0,
    verified: bool = True,
    world_size: int = 2,
) -> CollectiveResult:
    """Return a result whose bandwidths follow from its median."""
    return CollectiveResult(
        collective=collective,
        size_bytes=size_bytes,
        repetitions=20,
        min_us=0.9 * median_us,
        median_us=median_us,
        p95_us=1.2 * median_us,
        spread=0.3,
        algbw_gb_s=algbw_gb_s(size_bytes, median_us / 1e6),
        busbw_gb_s=busbw_gb_s(collective, size_bytes, median_us / 1e6, world_size),
        verified=verified,
        wrong_elements=0 if verified else 1,
        ranks=(),
    )


def trial_result(candidate: str = DEFAULT, median_us: float = 800.0, **changes: Any) -> TrialResult:
    """Return a trial that worked and measured both collectives at 8 B and 1 MiB."""
    if "transport" in changes:
        changes["transport"] = tuple(map(Carrier.from_text, changes["transport"]))
    both = (Collective.ALL_REDUCE, Collective.ALL_GATHER)
    results = tuple(timed(each, size, us) for each in both for size, us in ((8, 150.0), (MIB, median_us)))
    result = TrialResult(
        candidate=candidate,
        reason="",
        env=(),
        trial_env=(),
        unset=(),
        scope=Scope.ANYWHERE,
        outcome=Outcome.OK,
        problem="",
        culprits=(),
        stages=((0, "done"), (1, "done")),
        ranks=(),
        world_size_reported=((0, 2), (1, 2)),
        transport=(),
        results=results,
        started_by="fork",
        duration_s=0.6,
    )
    return dataclasses.replace(result, **changes)


def failed_trial(candidate: str = DEFAULT, **changes: Any) -> TrialResult:
    """Return a trial that hung at init."""
    failure: dict[str, Any] = {"outcome": Outcome.HANG, "problem": "rank 1 is stuck at init; rank 0 waits for it"}
    return trial_result(candidate, **{**failure, "results": (), **changes})


def netif_trial(name: str, **changes: Any) -> TrialResult:
    """Return a trial of one interface that worked."""
    env = (("GLOO_SOCKET_IFNAME", name), ("NCCL_SOCKET_IFNAME", f"={name}"))
    return trial_result(f"netif-{name}", **{"env": env, "scope": Scope.ONE_NODE, **changes})


def duel_of(candidate: str, gains: Sequence[float], verified: bool = True, problem: str = "") -> Duel:
    """Return a duel with one turn per pair and point, in which the candidate is `gain` faster."""
    turns = tuple(
        DuelTurn(pair, 0, collective, size, 1000.0 * (1 + gain), 1000.0, verified)
        for pair, gain in enumerate(gains)
        for collective, size in POINTS
    )
    return Duel(candidate, turns, problem)


def advice_of(**changes: Any) -> Advice:
    """Return the advice to set nothing."""
    advice = Advice(
        (), (), (), (), Gap("not computed"), Gap("not computed"), (), "the default works: 1.31 GB/s, verified"
    )
    return dataclasses.replace(advice, **changes)


def report_of(**changes: Any) -> Report:
    """Return the report of a healthy run over gloo."""
    report = Report(
        schema_version=SCHEMA_VERSION,
        preflight_version="0.1.0",
        created_at="2026-10-05T12:00:00Z",
        verdict=Verdict.READY,
        node_verdict=Gap("--accept was not given"),
        exit_code=0,
        headline="ready: 2 ranks on gloo, no GPU tested, data verified; no settings needed",
        simulated=False,
        backend="gloo",
        profile="quick",
        world_size=2,
        nodes=(node_facts(),),
        trials=(trial_result(),),
        comparisons=(),
        left_out=(),
        findings=(),
        skipped_checks=(),
        problems=(),
        advice=advice_of(),
        durations_s=(("probe", 0.21), ("launch", 1.94), ("trials", 0.62), ("total", 2.81)),
    )
    return dataclasses.replace(report, **changes)
