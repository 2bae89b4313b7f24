"""Permanent names of a node's parts: UUIDs of GPUs and GUIDs of RDMA ports."""

from __future__ import annotations

from itertools import chain

from preflight.model.facts import NodeFacts, known_or

PAIR = "+"  # joins the UUIDs of two GPUs if either may be at fault


def part_of_gpu(node: NodeFacts, nvml_index: int) -> tuple[str, ...]:
    """Return the UUID of GPU `nvml_index` as a tuple with one item, or () if the UUID is not known."""
    uuid = uuid_of(node, nvml_index)
    return (uuid,) if uuid else ()


def part_of_pair(node: NodeFacts, a: int, b: int) -> tuple[str, ...]:
    """Return the joined UUIDs of the GPUs `a` and `b` as a tuple with one item, or () if a UUID is not known."""
    uuids = sorted((uuid_of(node, a), uuid_of(node, b)))
    return (PAIR.join(uuids),) if all(uuids) else ()


def part_of_port(node: NodeFacts, hca: str, port: int) -> tuple[str, ...]:
    """Return the name of an RDMA port as a tuple with one item, or () if the GID is unknown."""
    # The name contains the GUID, which is the lower half of the port's first GID.
    gids = (known_or(each.gids, ()) for each in known_or(node.hca_ports, ()) if (each.hca, each.port) == (hca, port))
    first = next((gid.gid for gid in next(gids, ()) if gid.gid_index == 0), "")
    return (f"port {':'.join(first.split(':')[-4:])}",) if first else ()


def parts_of_node(node: NodeFacts) -> frozenset[str]:
    """Return the names of the node's GPUs and RDMA ports that have a known UUID or GUID."""
    gpus = (part_of_gpu(node, gpu.nvml_index) for gpu in known_or(node.gpus, ()))
    ports = (part_of_port(node, each.hca, each.port) for each in known_or(node.hca_ports, ()))
    return frozenset(chain(*gpus, *ports))


def uuid_of(node: NodeFacts, nvml_index: int) -> str:
    """Return the UUID of GPU `nvml_index`, or "" if the UUID is not known."""
    found = (gpu.uuid for gpu in known_or(node.gpus, ()) if gpu.nvml_index == nvml_index)
    return known_or(next(found, ""), "")
