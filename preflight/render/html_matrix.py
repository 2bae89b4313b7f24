"""The matrices of the page: how GPUs and NICs reach each other, and what is true of peer access."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from preflight.model.facts import Gap, NodeFacts
from preflight.model.gpu import P2pStatus
from preflight.model.gpu_test import Arrived, Direction, Ending, PairTruth
from preflight.model.report import Report
from preflight.model.units import three_digits
from preflight.render.reasons import line

UNKNOWN = "?"
SELF = "X"
HEAT = {"PIX": "h1", "PXB": "h2", "PHB": "h3", "NODE": "h4", "SYS": "h5"}
NVLINK = re.compile(r"NV\d+")


@dataclass(frozen=True, slots=True)
class Block:
    """Devices of one NUMA node, side by side."""

    title: str
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell: its words, the class that colours it, and what it says in full."""

    text: str
    heat: str
    told: str = ""
    edge: bool = False  # a new block begins here


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a matrix; `block` is set on the first row of a block, with how many rows it has."""

    name: str
    cells: tuple[Cell, ...]
    block: str = ""
    span: int = 0


@dataclass(frozen=True, slots=True)
class Matrix:
    """A matrix with blocks over its columns and beside its rows."""

    caption: str
    columns: tuple[Block, ...]
    rows: tuple[Row, ...]


def path_matrix(node: NodeFacts) -> Matrix | None:
    """Return how GPUs and NICs reach each other, by NUMA node; None where that isn't known."""
    gpus = _gpu_blocks(node)
    names = [name for block in gpus for name in block.names]
    if len(names) < 2 or isinstance(node.gpu_paths, Gap):
        return None
    levels: dict[tuple[str, str], str] = {}
    for path in node.gpu_paths:
        word = UNKNOWN if isinstance(path.level, Gap) else line(path.level)
        levels[f"GPU{path.a}", f"GPU{path.b}"] = levels[f"GPU{path.b}", f"GPU{path.a}"] = word
    for way in () if isinstance(node.nic_paths, Gap) else node.nic_paths:
        word = UNKNOWN if isinstance(way.level, Gap) else line(way.level)
        levels[f"GPU{way.gpu}", line(way.nic)] = word
    columns = (*gpus, *_nic_blocks(node, levels))
    return Matrix("Paths from each GPU to the other GPUs and to the NICs", columns, _rows(gpus, columns, levels))


def _rows(rows: Sequence[Block], columns: Sequence[Block], levels: dict[tuple[str, str], str]) -> tuple[Row, ...]:
    made = []
    for block in rows:
        for place, name in enumerate(block.names):
            cells = []
            for column in columns:
                for i, other in enumerate(column.names):
                    word = SELF if other == name else levels.get((name, other), UNKNOWN)
                    cells.append(Cell(word, _heat(word), edge=i == 0))
            made.append(Row(name, tuple(cells), "" if place else block.title, 0 if place else len(block.names)))
    return tuple(made)


def _heat(word: str) -> str:
    if word == SELF:
        return "self"
    return "h0" if NVLINK.fullmatch(word) else HEAT.get(word, "h9")


def _gpu_blocks(node: NodeFacts) -> tuple[Block, ...]:
    if isinstance(node.gpus, Gap):
        return ()
    return _blocks((f"GPU{gpu.nvml_index}", gpu.numa_node) for gpu in node.gpus)


def _nic_blocks(node: NodeFacts, levels: dict[tuple[str, str], str]) -> tuple[Block, ...]:
    if isinstance(node.nics, Gap):
        return ()
    seen = {name for pair in levels for name in pair}
    return _blocks(((line(nic.name), nic.numa_node) for nic in node.nics if line(nic.name) in seen), "NICs, ")


def _blocks(devices: Iterable[tuple[str, int | Gap]], about: str = "") -> tuple[Block, ...]:
    by_node: dict[str, list[str]] = {}
    for name, numa in devices:
        title = f"{about}NUMA {UNKNOWN if isinstance(numa, Gap) else numa}"
        by_node.setdefault(title, []).append(name)
    return tuple(Block(title, tuple(dict.fromkeys(names))) for title, names in by_node.items())


def p2p_matrix(report: Report, node: NodeFacts) -> Matrix | None:
    """Return for each pair what the driver says, whether the bytes were right, and GB/s where it was measured."""
    gpus = _gpu_blocks(node)
    driver = () if isinstance(node.gpu_p2p, Gap) else node.gpu_p2p
    cells: dict[tuple[str, str], Cell] = {}
    for said in driver:
        status = said.write if said.read is P2pStatus.OK else said.read
        _both(cells, said.a, said.b, _driver_cell(status))
    for tried in _tried_pairs(report):
        _both(cells, tried.a, tried.b, _tried_cell(tried))
    if not cells:
        return None
    was_tried = bool(_tried_pairs(report))
    caption = "driver says / bytes right / GB/s" if was_tried else "what the driver says; no copy was tried"
    rows = []
    for block in gpus:
        for place, name in enumerate(block.names):
            others = [(i, other) for column in gpus for i, other in enumerate(column.names)]
            line_of = tuple(_at(cells, name, other, edge=i == 0) for i, other in others)
            rows.append(Row(name, line_of, "" if place else block.title, 0 if place else len(block.names)))
    return Matrix(f"Peer access between GPUs: {caption}", gpus, tuple(rows))


def _at(cells: dict[tuple[str, str], Cell], name: str, other: str, *, edge: bool) -> Cell:
    found = Cell(SELF, "self") if name == other else cells.get((name, other), Cell(UNKNOWN, "h9", "not known"))
    return Cell(found.text, found.heat, found.told, edge)


def _both(cells: dict[tuple[str, str], Cell], a: int, b: int, cell: Cell) -> None:
    cells[f"GPU{a}", f"GPU{b}"] = cells[f"GPU{b}", f"GPU{a}"] = cell


def _driver_cell(status: P2pStatus | Gap) -> Cell:
    if isinstance(status, Gap):
        return Cell(UNKNOWN, "h9", f"the driver's statement is not known: {line(status.reason)}")
    told = f"the driver says {status.value.replace('_', ' ')}; no copy was tried"
    return Cell("yes", "plain", told) if status is P2pStatus.OK else Cell("no", "warned", told)


def _tried_pairs(report: Report) -> Sequence[PairTruth]:
    """Return what the tests of the pairs found, the bad ones last: a pair that failed under load stays bad."""
    pairs = () if isinstance(report.p2p, Gap) else report.p2p
    return sorted(pairs, key=lambda pair: pair.end is not Ending.OK)


def _tried_cell(pair: PairTruth) -> Cell:
    said = UNKNOWN if isinstance(pair.driver, Gap) else "yes" if pair.driver is P2pStatus.OK else "no"
    wrong = [copy for copy in pair.copies if copy.arrived is not Arrived.RIGHT]
    right = "no" if wrong else "yes" if pair.copies else "-"
    rates = [
        speed.gb_s for speed in pair.speeds if not isinstance(speed.gb_s, Gap) and speed.direction is not Direction.BOTH
    ]
    rate = three_digits(min(rates)) if rates else "-"
    end = pair.end.value
    heat = "bad" if wrong or end in ("wrong", "hang", "crash") else "good" if right == "yes" else "h9"
    told = f"the driver says {said}; {len(pair.copies)} copies tried, {len(wrong)} of them wrong"
    return Cell(f"{said} / {end if end in ('hang', 'crash') else right} / {rate}", heat, line(pair.problem) or told)
