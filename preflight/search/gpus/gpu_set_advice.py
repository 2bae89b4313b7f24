"""Advice on the chosen GPUs: whether the GPUs are close to each other, and which free GPUs are closer."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import combinations

from preflight.model.facts import NodeFacts, inherited_value
from preflight.model.gap import known_or
from preflight.search.gpus.gpu_set import visible_gpus
from preflight.search.gpus.locality import (
    BELOW_SWITCH,
    NVLINK,
    PCIE,
    Locality,
    cost,
    domains,
    islands,
    locality_of,
    switches,
)

MOST_SETS = 20_000  # that are compared one by one; with more sets, one grown from each GPU is compared


class Boundary(Enum):
    """A kind of boundary between GPUs, such as the boundary between NUMA nodes."""

    MODEL = "GPU models"
    NVLINK = "NVLink islands"
    NUMA = "NUMA nodes (sockets)"
    SWITCH = "PCIe switches"


ONE = {
    Boundary.MODEL: "one GPU model",
    Boundary.NVLINK: "one NVLink island",
    Boundary.NUMA: "one NUMA node (socket)",
    Boundary.SWITCH: "one PCIe switch",
}


@dataclass(frozen=True, slots=True)
class Side:
    """The name of one side of a boundary, and the chosen GPUs on this side."""

    name: str
    gpus: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Crossing:
    """A boundary inside a set of GPUs, such as between NUMA nodes, and the GPUs on each side."""

    boundary: Boundary
    sides: tuple[Side, ...]


@dataclass(frozen=True, slots=True)
class GpuSetAdvice:
    """The boundaries inside the chosen set of GPUs, and a better set. `better` is empty if no set is better."""

    gpus: tuple[int, ...]
    crossings: tuple[Crossing, ...]
    within: tuple[Boundary, ...]  # the boundaries that the set is known not to cross
    worst: str  # the slowest path in the set; "" for one GPU, or if no path is known
    better: tuple[int, ...]
    better_crossings: tuple[Crossing, ...]
    better_worst: str
    reason: str


def advise_gpus(node: NodeFacts, gpus: Sequence[int]) -> GpuSetAdvice:
    """Return advice on the chosen GPUs `gpus`, which are NVML indices.

    Raise UnreadableFact if the connections of the GPUs are unknown.
    """
    # The better set has only chosen and free GPUs, and no GPU that CUDA_VISIBLE_DEVICES hides.
    locality = locality_of(node)
    visible = inherited_value(node, "CUDA_VISIBLE_DEVICES")
    allowed = None if visible is None else [gpu.nvml_index for gpu in visible_gpus(visible, known_or(node.gpus, ()))]
    free = [gpu for gpu, place in locality.by_gpu.items() if place.is_free and (allowed is None or gpu in allowed)]
    pool = [gpu for gpu in locality.by_gpu if gpu in gpus or gpu in free]
    mine = _score(locality, gpus)
    best = min(_sets(locality, pool, len(gpus)), key=lambda each: (*_score(locality, each), *_order(each, gpus)))
    better = best if _score(locality, best) < mine else ()
    crossings, others = crossings_of(locality, gpus), crossings_of(locality, better)
    worst, better_worst = worst_level(locality, gpus), worst_level(locality, better)
    reason = _reason(crossings, worst, others, better_worst) if better else ""
    return GpuSetAdvice(tuple(gpus), crossings, within(locality, gpus), worst, better, others, better_worst, reason)


def crossings_of(locality: Locality, gpus: Sequence[int]) -> tuple[Crossing, ...]:
    """Return every boundary that separates GPUs in `gpus`, or () if there is no such boundary.

    PCIe switches count only if NVLink does not connect all of the GPUs.
    """
    found = []
    names = {locality.by_gpu[gpu].name for gpu in gpus}
    if len(names) > 1:
        sides = [Side(name or "unknown", tuple(g for g in gpus if locality.by_gpu[g].name == name)) for name in names]
        found.append(Crossing(Boundary.MODEL, tuple(sorted(sides, key=lambda side: side.gpus))))
    joined = islands(locality, gpus)
    has_nvlink = any(NVLINK.fullmatch(level) for level in locality.levels.values())
    if has_nvlink and len(joined) > 1:
        found.append(Crossing(Boundary.NVLINK, _numbered("island", joined)))
    by_node = domains(locality, gpus)
    if len(by_node) > 1:
        found.append(Crossing(Boundary.NUMA, tuple(Side(_node_name(locality, group), group) for group in by_node)))
    below = switches(locality, gpus)
    everywhere = switches(locality, tuple(locality.by_gpu))
    if len(joined) > 1 and len(below) > 1 and any(len(group) > 1 for group in everywhere):
        found.append(Crossing(Boundary.SWITCH, _numbered("switch", below)))
    return tuple(found)


def within(locality: Locality, gpus: Sequence[int]) -> tuple[Boundary, ...]:
    """Return the boundaries that certainly lie between no two GPUs of `gpus`."""
    crossed = {each.boundary for each in crossings_of(locality, gpus)}
    levels = [locality.level(a, b) for a, b in combinations(gpus, 2)]
    has_nodes = all(locality.by_gpu[gpu].numa_node is not None for gpu in gpus)
    uncrossed = {
        Boundary.MODEL: all(locality.by_gpu[gpu].name for gpu in gpus),
        Boundary.NVLINK: bool(levels) and all(NVLINK.fullmatch(level) for level in levels),
        Boundary.NUMA: has_nodes or all(level in PCIE for level in levels),
        Boundary.SWITCH: all(level in BELOW_SWITCH for level in levels),
    }
    return tuple(boundary for boundary, is_known in uncrossed.items() if is_known and boundary not in crossed)


def worst_level(locality: Locality, gpus: Sequence[int]) -> str:
    """Return the level of the slowest path between two of the GPUs, such as `SYS`, or "" for one GPU."""
    return max((locality.level(a, b) for a, b in combinations(gpus, 2)), key=cost, default="")


def _sets(locality: Locality, pool: Sequence[int], size: int) -> Iterable[tuple[int, ...]]:
    if math.comb(len(pool), size) <= MOST_SETS:
        return combinations(sorted(pool), size)
    return [_grown(locality, pool, seed, size) for seed in pool]


def _grown(locality: Locality, pool: Sequence[int], seed: int, size: int) -> tuple[int, ...]:
    """Return `size` GPUs from `pool`, chosen one after the other.

    The first GPU is `seed`. Each further step adds the GPU that gives the best set.
    """
    chosen = [seed]
    while len(chosen) < size:
        rest = [gpu for gpu in pool if gpu not in chosen]
        chosen.append(min(rest, key=lambda gpu: (*_score(locality, [*chosen, gpu]), gpu)))
    return tuple(sorted(chosen))


def _score(locality: Locality, gpus: Sequence[int]) -> tuple[float, ...]:
    """Return a sort key that is larger for worse sets.

    The key compares the number of GPU models, the slowest path, the sum of all paths and the number of NUMA nodes, in
    this order.
    """
    costs = [cost(locality.level(a, b)) for a, b in combinations(gpus, 2)]
    models = len({locality.by_gpu[gpu].name for gpu in gpus})
    # A set that is slow at its slowest path is slow; sums differ in the last digits by the order of adding.
    return (models, max(costs, default=0.0), round(sum(costs), 6), len(domains(locality, gpus)))


def _order(gpus: Sequence[int], chosen: Sequence[int]) -> tuple[int, ...]:
    """Return a sort key for sets of GPUs with equal scores.

    Sets with the smallest range of GPU numbers come first, then sets that share more GPUs with the user's choice.

    Among sets that are still equal, low GPU numbers come first.
    """
    return (max(gpus) - min(gpus), -len({*gpus} & {*chosen}), *gpus) if gpus else ()


def _numbered(what: str, sets: Sequence[tuple[int, ...]]) -> tuple[Side, ...]:
    return tuple(Side(f"{what} {number}", group) for number, group in enumerate(sets, 1))


def _node_name(locality: Locality, group: Sequence[int]) -> str:
    nodes = sorted({node for gpu in group if (node := locality.by_gpu[gpu].numa_node) is not None})
    return f"node {nodes[0]}" if nodes else "unnamed node"


def _reason(crossings: Sequence[Crossing], worst: str, others: Sequence[Crossing], better_worst: str) -> str:
    left = {each.boundary for each in others}
    gone = [ONE[each.boundary] for each in crossings if each.boundary not in left]
    parts = [f"these GPUs share {' and '.join(gone)}"] if gone else []
    parts += [
        f"these GPUs span {len(other.sides)} {each.boundary.value} instead of {len(each.sides)}"
        for each in crossings
        for other in others
        if other.boundary is each.boundary and len(other.sides) < len(each.sides)
    ]
    if cost(better_worst) < cost(worst) and worst:
        parts.append(f"their slowest path is {better_worst}, not {worst}")
    return ", and ".join(parts) or "the mean path between them is shorter"
