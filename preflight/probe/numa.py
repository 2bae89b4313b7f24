"""Read the NUMA nodes: their CPUs, memory and distances."""

from __future__ import annotations

import re

from preflight.errors import UnreadableFact
from preflight.model.facts import NumaNode
from preflight.probe.reading import first_of, gap_or, parse_cpu_list, parse_cpu_mask, parse_meminfo, parse_whole
from preflight.system.machine import Machine

NODES = "sys/devices/system/node"


def probe_numa_nodes(machine: Machine) -> tuple[NumaNode, ...]:
    """Return the nodes by id; none where the kernel was built without NUMA."""
    if not machine.exists("sys/devices/system"):
        raise UnreadableFact("/sys/devices/system: not there")
    ids = sorted(int(match[1]) for name in machine.names(NODES) if (match := re.fullmatch(r"node([0-9]{1,6})", name)))
    return tuple(_read_node(machine, node) for node in ids)


def _read_node(machine: Machine, node: int) -> NumaNode:
    directory = f"{NODES}/node{node}"
    return NumaNode(
        id=node,
        cpus=gap_or(lambda: _read_cpus(machine, directory)),
        memory_bytes=gap_or(lambda: parse_meminfo(machine.text(f"{directory}/meminfo"), "MemTotal")),
        distances=gap_or(lambda: parse_distances(machine.text(f"{directory}/distance"))),
    )


def _read_cpus(machine: Machine, directory: str) -> tuple[int, ...]:
    return first_of(
        lambda: parse_cpu_list(machine.text(f"{directory}/cpulist")),
        lambda: parse_cpu_mask(machine.text(f"{directory}/cpumap")),  # kernels before 2.6.26
    )


def parse_distances(text: str) -> tuple[int, ...]:
    """Parse `10 21`: the distances to all nodes in the order of their ids, 10 to itself."""
    distances = tuple(parse_whole(word, "distance") for word in text.split())
    if not distances:
        raise UnreadableFact("distance: the file is empty")
    return distances
