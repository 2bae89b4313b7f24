"""Composed reports of the recorded 8-GPU node: real facts, checks and verdicts; the trials' times are made up."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

from preflight.check.survey import survey_capture
from preflight.errors import UnreadableFact
from preflight.model.collective import Collective
from preflight.model.facts import NodeFacts
from preflight.model.report import Report
from preflight.model.run_spec import RankSamples
from preflight.model.samples import aggregate
from preflight.model.trial import CollectiveResult, Comparison, LeftOut, Outcome, Scope, TrialResult
from preflight.search.gpus.link_speeds import expected_busbw
from preflight.system.links import load_links
from tests.node_facts import trial
from tests.show.judged import MACHINES, MIB, judged

SIZES = (8, 1 << 10, 32 << 10, MIB, 32 * MIB, 256 * MIB, 1 << 30)
BOTH = (Collective.ALL_REDUCE, Collective.ALL_GATHER)
RANKS = 8
LATENCY_US = 24.0


@cache
def recorded_node(name: str = "h100x8") -> NodeFacts:
    """Return the facts of a recorded machine."""
    return survey_capture((MACHINES / f"{name}.json").read_text()).node


def measured(node: NodeFacts, share: float, slow_rank: int | None = None) -> tuple[CollectiveResult, ...]:
    """Return results that reach a share of the upper end of what the links should give, after a latency."""
    results = []
    for collective in BOTH:
        for size in SIZES:
            try:
                high_gb_s = expected_busbw(load_links(), node, tuple(range(RANKS)), collective, size).high_gb_s
            except UnreadableFact:
                high_gb_s = 20.0
            factor = 2 * (RANKS - 1) / RANKS if collective is Collective.ALL_REDUCE else (RANKS - 1) / RANKS
            call_us = LATENCY_US + size * factor / (share * high_gb_s * 1e3)
            ranks = [_samples(rank, call_us, 1.4 if rank == slow_rank else 1.0) for rank in range(RANKS)]
            results.append(aggregate(collective, size, ranks))
    return tuple(results)


def _samples(rank: int, call_us: float, slowness: float) -> RankSamples:
    wobble = [1 + 0.004 * ((rank * 7 + i * 3) % 5) for i in range(8)]
    return RankSamples(
        rank=rank,
        barrier_us=tuple(3.0 if slowness > 1 else call_us * 0.4 * (slowness == 1) for _ in wobble),
        call_us=tuple(call_us * each * slowness for each in wobble),
        gap_us=tuple(call_us * (slowness - 1) + 1.5 for _ in wobble),
        wrong_elements=0,
    )


def _trial(candidate: str, **changes: Any) -> TrialResult:
    return trial(candidate, world_size=RANKS, **{"duration_s": 9.3, **changes})


def healthy() -> Report:
    """Return an accepted node on which every candidate works and none is clearly faster than the default."""
    node = recorded_node()
    nvls = ("P2P/CUMEM over NVLink", "NVLS")
    trials = (
        _trial("default", results=measured(node, 0.93), transport=nvls),
        _trial("no-nvls", env=(("NCCL_NVLS_ENABLE", "0"),), results=measured(node, 0.8), transport=nvls[:1],
               reason="what NVSwitch adds is seen by switching it off"),
        _trial("no-p2p", env=(("NCCL_P2P_DISABLE", "1"),), results=measured(node, 0.11), transport=("SHM",),
               reason="the cost of the usual work-around"),
        _trial("cumem-off", env=(("NCCL_CUMEM_ENABLE", "0"),), outcome=Outcome.NO_EFFECT, results=measured(node, 0.92),
               problem="went over P2P over NVLink, NVLS, as the default did", culprits=()),
    )  # fmt: skip
    lost = (Comparison("no-nvls", 8, -0.121, -0.14, -0.17, wins=False),)
    report = judged((node,), trials, lost, world_size=RANKS, gpus=tuple(range(RANKS)))
    return _with_left_out(report)


def worked_round() -> Report:
    """Return a node on which peer access hangs and switching it off helps; one rank is slow."""
    node = recorded_node("l20x10")
    hang = _trial(
        "default", outcome=Outcome.HANG, results=(), culprits=(3,),
        problem="rank 3 hung at the first collective; ranks 0-2, 4-7 timed out waiting",
    )  # fmt: skip
    cure = _trial(
        "no-p2p", env=(("NCCL_P2P_DISABLE", "1"),), unset=("NCCL_IB_DISABLE",),
        results=measured(node, 0.7, slow_rank=5),
        transport=("SHM",), scope=Scope.ANYWHERE, reason="peer access crosses an IOMMU that translates",
    )  # fmt: skip
    worse = _trial("no-shm", env=(("NCCL_SHM_DISABLE", "1"),), outcome=Outcome.WRONG_DATA, results=(),
                   problem="all_reduce 1 MiB: 262144 wrong elements on rank 2")  # fmt: skip
    report = judged((node,), (hang, cure, worse), world_size=RANKS, gpus=tuple(range(RANKS)), accept=False)
    names = ("PREFLIGHT_PG_TIMEOUT_S", "PREFLIGHT_INIT_TIMEOUT_S", "DEEPSPEED_TIMEOUT")
    why = "the time budget is 180 s, so the minimum is enough"
    timeouts = tuple(zip(names, ("600", "600", "10"), strict=True))
    advice = replace(report.advice, pg_timeout_s=600, init_timeout_s=600, timeout_env=timeouts, timeout_reason=why)
    return _with_left_out(replace(report, advice=advice))


def _with_left_out(report: Report) -> Report:
    left_out = (LeftOut("no-ib", "one node: no trial crosses the network"), LeftOut("netif-lo", "never recommended"))
    return replace(report, left_out=left_out)
