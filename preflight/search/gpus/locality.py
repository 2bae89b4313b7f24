"""The position of GPUs in a node: model, NUMA node, and paths to other GPUs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from preflight.model.facts import Gap, Gpu, NodeFacts, known
from preflight.model.gap import known_or, or_none
from preflight.model.gpu import Mode

NVLINK = re.compile(r"NV(\d{1,2})")
ACROSS = "SYS"
BELOW_SWITCH = frozenset({"PIX", "PXB"})
PCIE = BELOW_SWITCH | {"PHB", "NODE", ACROSS}
IDLE_BYTES = 1 << 30  # a desktop or a monitoring agent may hold less on a free GPU


@dataclass(frozen=True, slots=True)
class GpuLocality:
    """The position of one GPU in a node. Unknown values are "" or None."""

    gpu: int  # nvml_index; without NVML the place in bus order
    name: str
    numa_node: int | None
    is_free: bool


@dataclass(frozen=True, slots=True)
class Locality:
    """All GPUs of a node and the paths between them.

    If the two directions between two GPUs have different paths, the slower path counts.
    """

    by_gpu: Mapping[int, GpuLocality]
    levels: Mapping[tuple[int, int], str]  # "" where it could not be read

    def level(self, a: int, b: int) -> str:
        """Return the path between the GPUs `a` and `b`, such as `NV4` or `PIX`, or "" if the path is unknown."""
        return self.levels.get((min(a, b), max(a, b)), "")


def locality_of(node: NodeFacts) -> Locality:
    """Return the node's GPUs and the paths between them.

    Raise UnreadableFact if neither NVML nor the PCI bus shows GPUs.
    """
    levels: dict[tuple[int, int], str] = {}
    for path in known(node.gpu_paths):
        pair = (min(path.a, path.b), max(path.a, path.b))
        level = known_or(path.level, "")
        levels[pair] = max(levels.get(pair, level), level, key=cost)
    return Locality({gpu.gpu: gpu for gpu in _localities(node)}, levels)


def _localities(node: NodeFacts) -> Iterable[GpuLocality]:
    if isinstance(node.gpus, Gap):
        for place, device in enumerate(known(node.nvidia_pci)):
            yield GpuLocality(place, device.device_id, or_none(device.numa_node), is_free=True)
        return
    for gpu in node.gpus:
        yield GpuLocality(gpu.nvml_index, known_or(gpu.name, ""), or_none(gpu.numa_node), is_free(gpu))


def is_free(gpu: Gpu) -> bool:
    """Return whether a GPU is free: MIG is off, and no process uses the GPU.

    If the processes are not known, a GPU counts as free if less than 1 GiB of its memory is in use.
    """
    if gpu.mig_mode is Mode.ENABLED:
        return False
    if isinstance(gpu.processes, tuple):
        return not gpu.processes
    return known_or(gpu.memory_used_bytes, 0) < IDLE_BYTES


def cost(level: str) -> float:
    """Return a sort key for `level`, a path between two GPUs. A slower path has a larger key."""
    # Paths with more NVLinks come first, then PCIe paths from near to far, then unknown paths.
    nvlinks = NVLINK.fullmatch(level)
    if nvlinks:
        return 1.0 / max(1, int(nvlinks[1]))
    order = ("C2C", "PIX", "PXB", "PHB", "NODE", "SOC", ACROSS)
    return 2.0 + (order.index(level) if level in order else len(order))


def islands(locality: Locality, gpus: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """Return the groups of `gpus` that NVLinks connect, directly or through other GPUs."""
    return groups(gpus, lambda a, b: NVLINK.fullmatch(locality.level(a, b)) is not None)


def switches(locality: Locality, gpus: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """Return the groups of `gpus` that PCIe switches join.

    Two GPUs are in one group if a path PIX or PXB, or a chain of such paths through other GPUs, joins the two GPUs.
    """
    return groups(gpus, lambda a, b: locality.level(a, b) in BELOW_SWITCH)


def domains(locality: Locality, gpus: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """Return `gpus` grouped by NUMA node.

    A GPU with an unknown NUMA node joins the group of another GPU, unless the path between the two GPUs leaves the NUMA
    node.
    """

    def together(a: int, b: int) -> bool:
        one, other = locality.by_gpu[a].numa_node, locality.by_gpu[b].numa_node
        if one is not None and other is not None:
            return one == other
        return locality.level(a, b) not in (ACROSS, "SOC")

    return groups(gpus, together)


def groups(gpus: Sequence[int], together: Callable[[int, int], bool]) -> tuple[tuple[int, ...], ...]:
    """Return groups of GPUs, sorted.

    Two GPUs are in one group if `together` returns true for the pair, or if a chain of such pairs connects the two
    GPUs.
    """
    found: list[set[int]] = []
    for gpu in gpus:
        joined = [group for group in found if any(together(gpu, other) for other in group)]
        found = [group for group in found if group not in joined]
        found.append({gpu}.union(*joined))
    return tuple(sorted(tuple(sorted(group)) for group in found))
