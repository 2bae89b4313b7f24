"""What a finding accuses, by names that outlive a boot: GPUs and pairs of them by UUID, ports by GUID."""

from __future__ import annotations

from collections.abc import Iterable

from preflight.judge.check import Case
from preflight.model.facts import NodeFacts, known_or
from preflight.model.history import PAIR


def parts_of_ranks(case: Case, ranks: Iterable[int]) -> tuple[str, ...]:
    """Return the GPUs of the ranks that a failure was traced to; of two of whom nobody was named, the pair."""
    uuids = _uuids_by_rank(case)
    named = sorted({rank for rank in ranks if rank < len(uuids)})
    if named:
        return tuple(uuids[rank] for rank in named if uuids[rank])
    return (PAIR.join(sorted(uuids)),) if len(uuids) == 2 and all(uuids) else ()


def part_of_gpu(node: NodeFacts, nvml_index: int) -> tuple[str, ...]:
    """Return the GPU's UUID; nothing where it has none that is known."""
    uuid = _uuid(node, nvml_index)
    return (uuid,) if uuid else ()


def part_of_pair(node: NodeFacts, a: int, b: int) -> tuple[str, ...]:
    """Return both UUIDs in one."""
    uuids = sorted((_uuid(node, a), _uuid(node, b)))
    return (PAIR.join(uuids),) if all(uuids) else ()


def part_of_port(node: NodeFacts, hca: str, port: int) -> tuple[str, ...]:
    """Return the port's GUID, which is the lower half of its first GID; nothing where that could not be read."""
    gids = (known_or(each.gids, ()) for each in known_or(node.hca_ports, ()) if (each.hca, each.port) == (hca, port))
    first = next((gid.gid for gid in next(gids, ()) if gid.gid_index == 0), "")
    return (f"port {':'.join(first.split(':')[-4:])}",) if first else ()


def _uuid(node: NodeFacts, nvml_index: int) -> str:
    found = (gpu.uuid for gpu in known_or(node.gpus, ()) if gpu.nvml_index == nvml_index)
    return known_or(next(found, ""), "")


def _uuids_by_rank(case: Case) -> tuple[str, ...]:
    """Return the UUID of each rank's GPU; nothing where ranks have none, or which is whose can't be told."""
    chosen = case.gpus_by_node or (case.gpus,)
    uuids = [_uuid(node, index) for node, gpus in zip(case.nodes, chosen, strict=False) for index in gpus]
    return tuple(uuids) if case.wants_gpus and len(uuids) == case.world_size else ()
