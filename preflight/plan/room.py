"""What a node has to give to a job: the free memory of its GPUs, and of the host what the cgroup leaves."""

from __future__ import annotations

from collections.abc import Sequence

from preflight.model.facts import Gap, NodeFacts, SystemFacts
from preflight.model.fit import Room

NO_GPU = Gap("there is no GPU here")


def room_of(node: NodeFacts, gpus: Sequence[int], ranks: int) -> Room:
    """Return the room for `ranks` ranks on these GPUs (nvml_index; all where none is named)."""
    gpu_free, gpu_source = _gpu_room(node, gpus)
    host, host_source = (node.system, "") if isinstance(node.system, Gap) else _host_room(node.system)
    return Room(ranks, gpu_free, gpu_source, host, host_source)


def _gpu_room(node: NodeFacts, gpus: Sequence[int]) -> tuple[int | Gap, str]:
    """Return the least free memory: ranks divide their work evenly, so that the fullest GPU decides."""
    if isinstance(node.gpus, Gap):
        return node.gpus, ""
    chosen = [gpu for gpu in node.gpus if not gpus or gpu.nvml_index in gpus]
    free = []
    for gpu in chosen:
        if isinstance(gpu.memory_free_bytes, Gap):
            return gpu.memory_free_bytes, ""
        free.append((gpu.memory_free_bytes, gpu.nvml_index))
    if not free:
        return NO_GPU, ""
    least, index = min(free)
    return least, f"free on GPU {index}" + (", the fullest" if len(free) > 1 else "")


def _host_room(system: SystemFacts) -> tuple[int | Gap, str]:
    available, limit = system.memory_available_bytes, system.cgroup_memory_limit_bytes
    if isinstance(available, Gap):
        return available, ""
    if isinstance(limit, int) and limit < available:
        return limit, "the cgroup's limit"
    return available, "MemAvailable"
