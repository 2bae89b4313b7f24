"""Plan the GPU tests that don't use NCCL: which tests run, in which order, and which run at the same time.

The functions do no I/O.
"""
# Each GPU has a process that keeps its CUDA contexts, because a new context takes 0.2 to 0.5 s. A process that hangs is
# ended at its time limit. The next round of its GPU then creates the contexts again. With 8 GPUs, `quick` needs about 3
# to 6 s for all pairs, and 1 to 2 s for matrix products and host copies. These times are estimates. All rounds together
# get at most a third of the time before the deadline.

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import replace

from preflight.model.device_job import (
    NO_DEVICES,
    DeviceJob,
    DevicePlan,
    GpuTestRound,
    JobGroup,
    JobKind,
    NumaCpus,
    ProductSize,
)  # fmt: skip
from preflight.model.facts import Gap, Gpu, NodeFacts
from preflight.model.gap import known_or, or_none
from preflight.model.gpu import EXCLUSIVE, P2pStatus
from preflight.model.gpu_test import Ending, PairTruth
from preflight.model.profile import ALL_TESTS, GpuTests, Profile

KIB, MIB = 1 << 10, 1 << 20
DATA_SIZES = (4 * KIB, MIB, 64 * MIB)  # a small one, one of several pages, and one that keeps the link busy
SPEED_SIZES = (64 * MIB,)
HOST_COPY_SIZES = (64 * MIB,)
# 137 GFLOP and 1.1 TFLOP: 2 to 20 ms each from a T4's successors to an H100, and under 1 GiB of memory.
PRODUCTS = (ProductSize("float32", 4096), ProductSize("bfloat16", 8192))
FIRST_WITH_BFLOAT16 = 7.0  # compute capability; cuBLAS on a P100 answers NOT_SUPPORTED (pytorch issue 57773)
PAIR_SPEED_S = 0.05
MOST_PEERS = 8
BURN_GEMM_S = 20.0  # long enough for clocks and heat to settle; integrity of the copies is looked at in between
Pair = tuple[int, int]
# The ending of all tests of a pair is the first of these that any of them had.
WORST_FIRST = (Ending.WRONG, Ending.HANG, Ending.CRASH, Ending.INCONCLUSIVE, Ending.SKIPPED, Ending.OK)


def device_plan(
    profile: Profile, gpus: Sequence[Gpu], node: NodeFacts, burn_s: float | None = None,
    tests: Set[GpuTests] = ALL_TESTS,
) -> DevicePlan:  # fmt: skip
    """Return the plan of the GPU tests for `gpus`. The plan is empty if there are no GPUs.

    `burn_s` is the duration of the tests under load in seconds, or None for the duration of the profile.
    """
    # Pairs of GPUs are tested first. `quick` does not measure the bandwidth of pairs.
    if not gpus:
        return NO_DEVICES
    effort = profile.effort
    pairs = _data_rounds(len(gpus)) if GpuTests.PAIRS in tests else []
    alone, under_load = (
        [_alone_round(gpus, node, gemm_s, copy_s)] if GpuTests.GPUS in tests else []
        for gemm_s, copy_s in ((effort.gemm_s, effort.copy_s), (BURN_GEMM_S, effort.copy_s))
    )
    speeds = _speed_rounds(len(gpus)) if pairs and effort.for_speed else []
    return DevicePlan(
        gpus=tuple(gpu.nvml_index for gpu in gpus),
        rounds=(*pairs, *alone, *speeds),
        burn_rounds=(*under_load, *pairs) if effort.burn_s else (),
        burn_s=effort.burn_s if burn_s is None else burn_s,
        rounds_per_process=_rounds_per_process(gpus),
    )


def owner_of(pair: Pair, count: int) -> int:
    """Return the GPU of `pair` whose process tests the pair. Each process tests about half of the pairs of its GPU."""
    low, high = pair
    return low if 2 * (high - low) <= count else high


def _rounds_per_process(gpus: Sequence[Gpu]) -> int:
    """Return after how many rounds the processes must release their GPU contexts, or 0 for never.

    A GPU in an exclusive mode accepts only one process. Without NVSwitches, a GPU has peer access to at most 8 other
    GPUs (CUDA C++ Programming Guide, "Peer-to-Peer Memory Access"). This limit holds for all processes together. Each
    round adds one peer.
    """
    if any(gpu.compute_mode in EXCLUSIVE for gpu in gpus):
        return 1
    return MOST_PEERS if len(gpus) > MOST_PEERS + 1 else 0


def host_memory(gpu: Gpu, node: NodeFacts) -> tuple[NumaCpus, ...]:
    """Return the NUMA node of the GPU, then the NUMA node that is furthest from the GPU.

    The result is empty if the NUMA node of the GPU is unknown.
    """
    # Only CPUs that this process may use are listed.
    if isinstance(gpu.numa_node, Gap) or isinstance(node.numa_nodes, Gap):
        return ()
    allowed = None if isinstance(node.system, Gap) else or_none(node.system.cpu_affinity)
    usable: dict[int, tuple[int, ...]] = {}
    distance: dict[int, int] = {}
    for numa in node.numa_nodes:
        cpus = tuple(cpu for cpu in known_or(numa.cpus, ()) if allowed is None or cpu in allowed)
        if cpus and known_or(numa.memory_bytes, 1) > 0:
            usable[numa.id] = cpus
        if numa.id == gpu.numa_node:
            distance = dict(zip((each.id for each in node.numa_nodes), known_or(numa.distances, ()), strict=False))
    near = [gpu.numa_node] if gpu.numa_node in usable else []
    others = sorted((each for each in usable if each != gpu.numa_node), key=lambda each: -distance.get(each, 0))
    return tuple(NumaCpus(each, usable[each], each == gpu.numa_node) for each in [*near, *others[:1]])


def _data_rounds(count: int) -> list[GpuTestRound]:
    rounds = rounds_of_pairs(count)
    return [
        GpuTestRound(
            f"copies between GPUs, round {number + 1} of {len(rounds)}",
            tuple(_group(DeviceJob(JobKind.PAIR_DATA, pair, DATA_SIZES, 0.0), pair, count) for pair in pairs),
        )
        for number, pairs in enumerate(rounds)
    ]


def _speed_rounds(count: int) -> list[GpuTestRound]:
    pairs = sorted(pair for pairs in rounds_of_pairs(count) for pair in pairs)
    return [
        GpuTestRound(
            f"speed between GPUs, pair {number + 1} of {len(pairs)}",
            (_group(DeviceJob(JobKind.PAIR_SPEED, pair, SPEED_SIZES, PAIR_SPEED_S), pair, count),),
        )
        for number, pair in enumerate(pairs)
    ]


def _group(job: DeviceJob, pair: Pair, count: int) -> JobGroup:
    return JobGroup(pair, owner_of(pair, count), (job,))


def _alone_round(gpus: Sequence[Gpu], node: NodeFacts, gemm_s: float, copy_s: float) -> GpuTestRound:
    """Return a round that runs matrix products on all GPUs at once, and then host copies on one GPU at a time."""
    groups = tuple(
        JobGroup(
            (place,),
            place,
            (
                DeviceJob(JobKind.GEMM, (place,), (), gemm_s, products=_products(gpu)),
                DeviceJob(JobKind.HOST_COPY, (place,), HOST_COPY_SIZES, copy_s, host_memory(gpu, node), in_turn=True),
            ),
        )
        for place, gpu in enumerate(gpus)
    )
    return GpuTestRound("GEMMs and host copies on each GPU", groups)


def _products(gpu: Gpu) -> tuple[ProductSize, ...]:
    """Return the GEMMs that cuBLAS supports on this GPU.

    If the GPU's compute capability is unknown, return all GEMMs.
    """
    capability = known_or(gpu.compute_capability, "")
    has_all = not capability or float(capability) >= FIRST_WITH_BFLOAT16
    return tuple(each for each in PRODUCTS if has_all or each.dtype != "bfloat16")


def rounds_of_pairs(count: int) -> tuple[tuple[Pair, ...], ...]:
    """Return all pairs of the numbers from 0 to `count` - 1 in rounds. No number occurs twice in a round."""
    # There are `count` - 1 rounds, or `count` rounds if `count` is odd. The method is the circle method of a
    # round-robin tournament. The numbers in a pair are in ascending order.
    if count < 2:
        return ()
    players = count + count % 2
    rounds = []
    for turn in range(players - 1):
        circle = [players - 1, *((turn + i) % (players - 1) for i in range(players - 1))]
        met = ((circle[i], circle[players - 1 - i]) for i in range(players // 2))
        pairs = (tuple(sorted(pair)) for pair in met if max(pair) < count)
        rounds.append(tuple(sorted((low, high) for low, high in pairs)))
    return tuple(rounds)


def driver_says(node: NodeFacts, a: int, b: int) -> P2pStatus | Gap:
    """Return the driver's status of peer access between the GPUs with the NVML indices `a` and `b`.

    The result is a Gap object if the driver gave no status.
    """
    # The status of writes counts only if reads are OK.
    if isinstance(node.gpu_p2p, Gap):
        return node.gpu_p2p
    found = next((pair for pair in node.gpu_p2p if {pair.a, pair.b} == {a, b}), None)
    if found is None:
        return Gap("the driver said nothing of this pair")
    return found.write if found.read is P2pStatus.OK else found.read


def one_per_pair(tests: Sequence[PairTruth], node: NodeFacts) -> tuple[PairTruth, ...]:
    """Merge the test records into one record for each pair of GPUs and each repetition.

    Each record has the data test, the speed test and the driver's status of peer access.
    """
    found: dict[tuple[int, int, int], PairTruth] = {}
    for test in tests:
        key = (test.repetition, test.a, test.b)
        one = replace(test, driver=driver_says(node, test.a, test.b))
        found[key] = _together(found[key], one) if key in found else one
    return tuple(found[key] for key in sorted(found))


def _together(first: PairTruth, second: PairTruth) -> PairTruth:
    worse = min((first, second), key=lambda test: WORST_FIRST.index(test.end))
    return replace(
        first,
        end=worse.end,
        problem=worse.problem,
        cuda=second.cuda if isinstance(first.cuda, Gap) else first.cuda,
        copies=(*first.copies, *second.copies),
        speeds=(*first.speeds, *second.speeds),
        duration_s=first.duration_s + second.duration_s,
    )
