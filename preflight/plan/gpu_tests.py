"""What is tested on the GPUs themselves, in which order and with what at the same time; by profile. Pure.

What quick costs with 8 GPUs, argued, not measured (no GPU was reachable): the pairs take 7 rounds. A round is a fork
(20 ms), two CUDA contexts made side by side (0.2 to 0.5 s each where the driver stays loaded) and 18 copies of at most
64 MiB, which take 5 ms each over the slowest PCIe link: under a second, 4 to 7 s in all. Products and host copies are
one round: a context, twice the time for products, and the GPUs' copies one after another, of which 4 x 64 MiB at
12 GB/s take 25 ms: 2 to 3 s. What hangs ends at its limit, and all rounds together get no more than a third of the time
before the deadline.
"""

from __future__ import annotations

from collections.abc import Sequence

from preflight.model.device_job import (
    NO_DEVICES,
    DeviceJob,
    DevicePlan,
    JobGroup,
    JobKind,
    NumaCpus,
    ProductSize,
    Round,
)
from preflight.model.facts import Gap, Gpu, NodeFacts
from preflight.model.profile import Profile
from preflight.plan.pairs import rounds_of_pairs
from preflight.plan.profiles import BURN_S

KIB, MIB = 1 << 10, 1 << 20
DATA_SIZES = (4 * KIB, MIB, 64 * MIB)  # a small one, one of several pages, and one that keeps the link busy
SPEED_SIZES = (64 * MIB,)
HOST_COPY_SIZES = (64 * MIB,)
# 137 GFLOP and 1.1 TFLOP: 2 to 20 ms each from a T4's successors to an H100, and under 1 GiB of memory.
PRODUCTS = (ProductSize("float32", 4096), ProductSize("bfloat16", 8192))
GEMM_S = {Profile.QUICK: 0.3, Profile.STANDARD: 2.0, Profile.BURN: 5.0}
COPY_S = {Profile.QUICK: 0.02, Profile.STANDARD: 0.2, Profile.BURN: 0.5}
PAIR_SPEED_S = 0.05
BURN_GEMM_S = 20.0  # long enough for clocks and heat to settle; integrity of the copies is looked at in between


def device_plan(profile: Profile, gpus: Sequence[Gpu], node: NodeFacts, burn_s: float | None = None) -> DevicePlan:
    """Return the tests of these GPUs; nothing for none of them.

    Pairs are tried first: whatever NCCL does later is read in the light of whether copies arrive. Bandwidth is measured
    one pair at a time, since pairs that run together share uplinks, and not by quick.
    """
    if not gpus:
        return NO_DEVICES
    rounds = [*_data_rounds(len(gpus)), _alone_round(gpus, node, GEMM_S[profile], COPY_S[profile])]
    if profile is not Profile.QUICK:
        rounds += _speed_rounds(len(gpus))
    under_load = (_alone_round(gpus, node, BURN_GEMM_S, COPY_S[Profile.BURN]), *_data_rounds(len(gpus)))
    is_burn = profile is Profile.BURN
    return DevicePlan(
        gpus=tuple(gpu.nvml_index for gpu in gpus),
        rounds=tuple(rounds),
        burn_rounds=under_load if is_burn else (),
        burn_s=(BURN_S if burn_s is None else burn_s) if is_burn else 0.0,
    )


def host_memory(gpu: Gpu, node: NodeFacts) -> tuple[NumaCpus, ...]:
    """Return the GPU's own NUMA node first, then the one furthest from it; none where its own is not known.

    Only CPUs that this process may run on: memory is placed where the thread that touches it first runs.
    """
    if isinstance(gpu.numa_node, Gap) or isinstance(node.numa_nodes, Gap):
        return ()
    allowed = None if isinstance(node.system, Gap) or isinstance(node.system.cpu_affinity, Gap) else node.system
    may_run = None if allowed is None else frozenset(allowed.cpu_affinity)  # type: ignore[arg-type]
    usable: dict[int, tuple[int, ...]] = {}
    distance: dict[int, int] = {}
    for numa in node.numa_nodes:
        cpus = () if isinstance(numa.cpus, Gap) else tuple(c for c in numa.cpus if may_run is None or c in may_run)
        has_memory = isinstance(numa.memory_bytes, Gap) or numa.memory_bytes > 0
        if cpus and has_memory:
            usable[numa.id] = cpus
        if numa.id == gpu.numa_node and isinstance(numa.distances, tuple):
            distance = dict(zip((each.id for each in node.numa_nodes), numa.distances, strict=False))
    near = [gpu.numa_node] if gpu.numa_node in usable else []
    others = sorted((each for each in usable if each != gpu.numa_node), key=lambda each: -distance.get(each, 0))
    return tuple(NumaCpus(each, usable[each], each == gpu.numa_node) for each in [*near, *others[:1]])


def _data_rounds(count: int) -> list[Round]:
    rounds = rounds_of_pairs(count)
    return [
        Round(
            f"copies between GPUs, round {number + 1} of {len(rounds)}",
            tuple(JobGroup(pair, (DeviceJob(JobKind.PAIR_DATA, pair, DATA_SIZES, 0.0),)) for pair in pairs),
        )
        for number, pairs in enumerate(rounds)
    ]


def _speed_rounds(count: int) -> list[Round]:
    pairs = sorted(pair for pairs in rounds_of_pairs(count) for pair in pairs)
    return [
        Round(
            f"speed between GPUs, pair {number + 1} of {len(pairs)}",
            (JobGroup(pair, (DeviceJob(JobKind.PAIR_SPEED, pair, SPEED_SIZES, PAIR_SPEED_S),)),),
        )
        for number, pair in enumerate(pairs)
    ]


def _alone_round(gpus: Sequence[Gpu], node: NodeFacts, gemm_s: float, copy_s: float) -> Round:
    """Return products on all GPUs at once, as a job computes, then copies to and from the host, one GPU at a time."""
    groups = tuple(
        JobGroup(
            (place,),
            (
                DeviceJob(JobKind.GEMM, (place,), (), gemm_s, products=PRODUCTS),
                DeviceJob(JobKind.HOST_COPY, (place,), HOST_COPY_SIZES, copy_s, host_memory(gpu, node), in_turn=True),
            ),
        )
        for place, gpu in enumerate(gpus)
    )
    return Round("products and host copies on each GPU", groups)
