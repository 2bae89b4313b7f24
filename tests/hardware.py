"""Results of the tests below NCCL that tests start from: healthy ones, in which a test changes what it is about."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from preflight.judge.check import Case
from preflight.model.counters import CounterChange, CounterKind
from preflight.model.gap import Gap
from preflight.model.gpu import P2pStatus
from preflight.model.gpu_test import (
    Arrived,
    CopyBy,
    CopyResult,
    Direction,
    Ending,
    Gemm,
    GpuTest,
    Hardware,
    HostCopy,
    PairLimit,
    PairSpeed,
    PairTruth,
    UnderLoad,
)
from tests.node_facts import gpu_case, gpu_node

MIB = 1 << 20
COPIES = tuple(
    CopyResult(by, way, size, Arrived.RIGHT, 0, size // 4)
    for by, size, way in itertools.product(CopyBy, (4096, MIB, 64 * MIB), Direction)
)
LOAD = UnderLoad(40, 1700.0, 1650, 61, 655.5, ("sw_power_cap",), 5, 16)


def speeds(gb_s: float = 390.0) -> tuple[PairSpeed, ...]:
    """Return a pair's speeds, twice as much in both directions."""
    return tuple(
        PairSpeed(by, way, 64 * MIB, gb_s * (2 if way is Direction.BOTH else 1), 2.5)
        for by, way in itertools.product(CopyBy, Direction)
    )


def pair(a: int = 0, b: int = 1, **overrides: Any) -> PairTruth:
    """Return a pair whose copies all arrived."""
    made = PairTruth(a, b, P2pStatus.OK, True, Ending.OK, "", COPIES, speeds(), 0, 0.8)
    return replace(made, **overrides)


def gemm(dtype: str = "float32", tflop_s: float | Gap = 50.0, **overrides: Any) -> Gemm:
    """Return a product that is right and steady."""
    rows = {"float32": 4096, "bfloat16": 8192}[dtype]
    made = Gemm(dtype, rows, 100, tflop_s, 2800.0, 2750.0, 0, 0, f"{dtype}-digest")
    return replace(made, **overrides)


def host_copy(direction: str = "h2d", gb_s: float | Gap = 54.0, **overrides: Any) -> HostCopy:
    """Return a right copy with memory near the GPU."""
    return replace(HostCopy(direction, 0, True, 64 * MIB, gb_s, Arrived.RIGHT), **overrides)


def gpu_test(gpu: int = 0, **overrides: Any) -> GpuTest:
    """Return a healthy GPU's test."""
    products = (gemm(), gemm("bfloat16", 700.0))
    copies = (host_copy(), host_copy("d2h"))
    made = GpuTest(gpu, Ending.OK, "", products, copies, LOAD, LOAD, 0, 2.0)
    return replace(made, **overrides)


def counter(name: str = "pcie_replays", grown: int | Gap = 0, **overrides: Any) -> CounterChange:
    """Return a counter of GPU 0."""
    after = grown if isinstance(grown, Gap) else 5 + grown
    made = CounterChange("GPU 0", name, CounterKind.REPAIRED, 5, after, grown, "NVML", 0)
    return replace(made, **overrides)


def hardware(count: int = 4, **overrides: Any) -> Hardware:
    """Return healthy tests of GPUs that NVLink joins."""
    pairs = tuple(pair(a, b) for a, b in itertools.combinations(range(count), 2))
    made = Hardware(
        pairs=pairs,
        gpus=tuple(gpu_test(i) for i in range(count)),
        counters=(counter(),),
        burn_s=Gap("no burn was asked for"),
        counted_s=30.0,
        host_limits_gb_s=tuple((i, 63.0) for i in range(count)),
        pair_limits=tuple(PairLimit(each.a, each.b, "NV18", 450.0) for each in pairs),
    )
    return replace(made, **overrides)


def run_with(count: int = 4, **overrides: Any) -> Case:
    """Return a run on a healthy server of so many GPUs, with its tests below NCCL changed."""
    return gpu_case(nodes=(gpu_node(count),), hardware=hardware(count, **overrides))


def with_one(tests: Iterable[GpuTest], index: int, **overrides: Any) -> tuple[GpuTest, ...]:
    """Return the tests with one GPU's changed."""
    return tuple(replace(test, **overrides) if test.gpu == index else test for test in tests)
