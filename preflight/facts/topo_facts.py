"""Read the GPUs, adapters, paths and affinities from the text of `nvidia-smi topo -m`."""

from __future__ import annotations

import re
from dataclasses import fields
from itertools import combinations, product

from preflight.errors import UnreadableFact
from preflight.facts.reading import gap_or, parse_cpu_list
from preflight.facts.topo_tail import CPU, GPU_NUMA, NUMA
from preflight.facts.topo_text import LEVEL, TopologyMatrix, TopologyRow, read_matrix
from preflight.model.facts import Gap, Gpu, GpuPath, NodeFacts
from preflight.model.gpu import gpu_known_by
from preflight.model.hca import Nic, NicPath, UnreadLine

HOST = "pasted topology"
NOT_SHOWN = "`nvidia-smi topo -m` does not show it"
GPU = re.compile(r"GPU(\d{1,4})")


def topology_facts(text: str) -> NodeFacts:
    """Return the values of a node that are in `text`, a pasted topology. All other values are missing (Gaps).

    Raise MalformedInput if the text is not a topology.
    """
    matrix = read_matrix(text)
    given = {
        "host": HOST,
        "gpus": tuple(_gpu(matrix, name) for name in _gpus(matrix)),
        "gpu_paths": gpu_paths(matrix),
        "nics": tuple(_nic(matrix, name) for name in _nics(matrix)),
        "nic_paths": nic_paths(matrix),
        "unread_lines": tuple(UnreadLine(line, Gap(f"line {line}: {why}")) for line, why in _troubles(matrix)),
    }
    unknown = {field.name: Gap(NOT_SHOWN) for field in fields(NodeFacts) if field.name not in given}
    return NodeFacts(**{**unknown, **given})  # type: ignore[arg-type]


def gpu_paths(matrix: TopologyMatrix) -> tuple[GpuPath, ...]:
    """Return the path between each two GPUs in `matrix`, with the smaller GPU index first.

    If the rows of the two GPUs give different paths, the result has both paths. The second path has the larger index
    first.
    """
    found = []
    for a, b in combinations(_gpus(matrix), 2):
        there, back = _level(matrix, a, b), _level(matrix, b, a)
        if isinstance(there, Gap) and not isinstance(back, Gap):
            there = back
        found.append(GpuPath(_index(a), _index(b), there))
        if there != back and not isinstance(back, Gap):
            found.append(GpuPath(_index(b), _index(a), back))
    return tuple(found)


def nic_paths(matrix: TopologyMatrix) -> tuple[NicPath, ...]:
    """Return the path between each GPU and each adapter in `matrix`.

    If the rows of a GPU and of an adapter give different paths, the path in the row of the GPU counts.
    """
    found = []
    for gpu, nic in product(_gpus(matrix), _nics(matrix)):
        there, back = _level(matrix, gpu, nic), _level(matrix, nic, gpu)
        found.append(NicPath(_index(gpu), _nic_name(matrix, nic), back if isinstance(there, Gap) else there))
    return tuple(found)


def _troubles(matrix: TopologyMatrix) -> list[tuple[int, str]]:
    """Return (line, text) for each unreadable part, and for each pair of rows that contradict each other."""
    found = list(matrix.troubles)
    for name, row in matrix.rows.items():
        for other in matrix.columns:
            mine, theirs = _level(matrix, name, other), _level(matrix, other, name)
            if isinstance(mine, Gap) or isinstance(theirs, Gap) or mine == theirs:
                continue
            if (where := matrix.rows[other].line) > row.line:
                found.append((where, f"{other} to {name} is {theirs}, but line {row.line} says {mine}"))
    return sorted(found)


def _gpus(matrix: TopologyMatrix) -> list[str]:
    return sorted(dict.fromkeys(name for name in matrix.columns if GPU.fullmatch(name)), key=_index)


def _nics(matrix: TopologyMatrix) -> list[str]:
    return list(dict.fromkeys(name for name in matrix.columns if not GPU.fullmatch(name)))


def _index(name: str) -> int:
    return int(name[3:])


def _nic_name(matrix: TopologyMatrix, name: str) -> str:
    return matrix.nic_names.get(name, name)


def _level(matrix: TopologyMatrix, row_name: str, column: str) -> str | Gap:
    row = matrix.rows.get(row_name)
    if row is None:
        return Gap(f"there is no row of {row_name}")
    at = matrix.columns.index(column) if column in matrix.columns else len(row.cells)  # a row without its column
    if at >= len(row.cells):
        return Gap(f"line {row.line}: the row could not be read as far as {column}")
    cell = row.cells[at]
    return cell if LEVEL.fullmatch(cell) or row_name == column else Gap(f"line {row.line}: it says {cell}")


def _gpu(matrix: TopologyMatrix, name: str) -> Gpu:
    row = matrix.rows.get(name)
    index = _index(name)
    model, uuid = matrix.gpu_names.get(index, ("", ""))
    named = {key: value for key, value in (("name", model), ("uuid", uuid)) if value}
    return gpu_known_by(index, NOT_SHOWN, **named, **({} if row is None else _affinities(row)))


def _affinities(row: TopologyRow) -> dict[str, object]:
    return {
        "cpu_affinity": gap_or(lambda: parse_cpu_list(row.affinity.get(CPU))),
        "numa_node": gap_or(lambda: _one_node(row.affinity.get(NUMA))),
        "memory_affinity": gap_or(lambda: parse_cpu_list(row.affinity.get(NUMA))),
        "memory_numa_node": gap_or(lambda: _one_node(row.affinity.get(GPU_NUMA))),
    }


def _one_node(text: str) -> int:
    nodes = parse_cpu_list(text)
    if len(nodes) != 1:
        raise UnreadableFact(f"nvidia-smi says {text}, which is more than one NUMA node")
    return nodes[0]


def _nic(matrix: TopologyMatrix, name: str) -> Nic:
    return Nic(_nic_name(matrix, name), *[Gap(NOT_SHOWN)] * 7)
