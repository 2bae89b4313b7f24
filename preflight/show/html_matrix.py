"""The matrices of the HTML report: the paths between GPUs and NICs, and the peer access between GPUs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from preflight.model.facts import Gap, NodeFacts
from preflight.model.gpu import P2pStatus
from preflight.model.gpu_test import Arrived, Direction, Ending, PairTruth
from preflight.model.report import Report
from preflight.model.units import three_digits
from preflight.show.document import grouped
from preflight.show.text import UNKNOWN, fact_text, line

HEAT = {"PIX": "h1", "PXB": "h2", "PHB": "h3", "NODE": "h4", "SYS": "h5"}
LEAST_FOR_A_SENTENCE = 3
NVLINK = re.compile(r"NV\d+")


@dataclass(frozen=True, slots=True)
class Block:
    """The devices of one NUMA node, which have adjacent rows and columns in a matrix."""

    title: str
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell of a matrix: its text, the CSS class that colors the cell, and its full explanation."""

    text: str
    heat: str
    detail: str = ""
    edge: bool = False  # a new block begins here


SELF_CELL = Cell("X", "self")
Cells = Mapping[tuple[str, str], Cell]


@dataclass(frozen=True, slots=True)
class HtmlRow:
    """A row of a matrix.

    Only the first row of a block has `block` and `span`. `block` is the block's title, and `span` is the block's number
    of rows.
    """

    name: str
    cells: tuple[Cell, ...]
    block: str = ""
    span: int = 0


@dataclass(frozen=True, slots=True)
class HtmlMatrix:
    """A matrix with block titles above its columns and next to its rows."""

    caption: str
    columns: tuple[Block, ...]
    rows: tuple[HtmlRow, ...]
    chosen: frozenset[str] = frozenset()  # the names of the GPUs that were tried, if there are others

    @property
    def sentence(self) -> str:
        """Return one sentence that replaces a large matrix whose pairs all have the same value.

        The result is "" for any other matrix.
        """
        others = [cell for row in self.rows for cell in row.cells if cell != SELF_CELL and cell.text != SELF_CELL.text]
        words = {cell.text for cell in others}
        if len(words) != 1 or len(self.rows) < LEAST_FOR_A_SENTENCE:
            return ""
        detail = {cell.detail for cell in others}
        said = detail.pop() if len(detail) == 1 else ""
        return f"{self.caption.partition(':')[0]}, between all {len(self.rows)} devices: {said or words.pop()}"


def chosen_gpus(report: Report, node: NodeFacts) -> frozenset[str]:
    """Return the names of the GPUs that the run used, or an empty set if the run used all GPUs."""
    gpus = () if isinstance(node.gpus, Gap) else node.gpus
    names = frozenset(f"GPU{gpu.nvml_index}" for gpu in gpus if gpu.uuid in report.advice.gpus)
    return names if 0 < len(names) < len(gpus) else frozenset()


def path_matrix(node: NodeFacts, chosen: frozenset[str] = frozenset()) -> HtmlMatrix | None:
    """Return the matrix of the paths between GPUs and NICs, or None if the paths are unknown."""
    gpus = _gpu_blocks(node)
    if sum(len(block.names) for block in gpus) < 2 or isinstance(node.gpu_paths, Gap):
        return None
    cells: dict[tuple[str, str], Cell] = {}
    for path in node.gpu_paths:
        _both(cells, path.a, path.b, _path_cell(path.level))
    for way in () if isinstance(node.nic_paths, Gap) else node.nic_paths:
        cells[f"GPU{way.gpu}", line(way.nic)] = _path_cell(way.level)
    columns = (*gpus, *_nic_blocks(node, cells))
    rows = _rows(gpus, columns, cells, Cell(UNKNOWN, "h9"))
    return HtmlMatrix("Paths from each GPU to the other GPUs and to the NICs", columns, rows, chosen)


def _path_cell(level: str | Gap) -> Cell:
    word = fact_text(level, line)
    return Cell(word, "h0" if NVLINK.fullmatch(word) else HEAT.get(word, "h9"))


def _rows(rows: Sequence[Block], columns: Sequence[Block], cells: Cells, unknown: Cell) -> tuple[HtmlRow, ...]:
    others = [(other, i == 0) for block in columns for i, other in enumerate(block.names)]
    made = []
    for block in rows:
        for place, name in enumerate(block.names):
            found = [(SELF_CELL if other == name else cells.get((name, other), unknown), e) for other, e in others]
            row = tuple(replace(cell, edge=is_edge) for cell, is_edge in found)
            made.append(HtmlRow(name, row, "" if place else block.title, 0 if place else len(block.names)))
    return tuple(made)


def _gpu_blocks(node: NodeFacts) -> tuple[Block, ...]:
    if isinstance(node.gpus, Gap):
        return ()
    return _blocks((f"GPU{gpu.nvml_index}", gpu.numa_node) for gpu in node.gpus)


def _nic_blocks(node: NodeFacts, cells: Cells) -> tuple[Block, ...]:
    if isinstance(node.nics, Gap):
        return ()
    reached = {name for pair in cells for name in pair}
    return _blocks(((line(nic.name), nic.numa_node) for nic in node.nics if line(nic.name) in reached), "NICs, ")


def _blocks(devices: Iterable[tuple[str, int | Gap]], about: str = "") -> tuple[Block, ...]:
    by_node = grouped((f"{about}NUMA {fact_text(numa)}", name) for name, numa in devices)
    return tuple(Block(title, tuple(dict.fromkeys(names))) for title, names in by_node.items())


def p2p_matrix(report: Report, node: NodeFacts) -> HtmlMatrix | None:
    """Return the matrix of peer access between GPUs, or None if there is nothing to show."""
    gpus = _gpu_blocks(node)
    cells: dict[tuple[str, str], Cell] = {}
    for said in () if isinstance(node.gpu_p2p, Gap) else node.gpu_p2p:
        _both(cells, said.a, said.b, _driver_cell(said.write if said.read is P2pStatus.OK else said.read))
    pairs = () if isinstance(report.p2p, Gap) else report.p2p
    for pair in sorted(pairs, key=lambda pair: pair.end is not Ending.OK):  # one that failed under load stays bad
        _both(cells, pair.a, pair.b, _tried_cell(pair))
    if not cells:
        return None
    caption = "driver says / bytes right / GB/s" if pairs else "what the driver says; no copy was tried"
    rows = _rows(gpus, gpus, cells, Cell(UNKNOWN, "h9", "not known"))
    return HtmlMatrix(f"Peer access between GPUs: {caption}", gpus, rows, chosen_gpus(report, node))


def _both(cells: dict[tuple[str, str], Cell], a: int, b: int, cell: Cell) -> None:
    cells[f"GPU{a}", f"GPU{b}"] = cells[f"GPU{b}", f"GPU{a}"] = cell


def _driver_cell(status: P2pStatus | Gap) -> Cell:
    if isinstance(status, Gap):
        return Cell(UNKNOWN, "h9", f"the driver's statement is not known: {line(status.reason)}")
    detail = f"the driver says {status.value.replace('_', ' ')}; no copy was tested"
    return Cell("yes", "plain", detail) if status is P2pStatus.OK else Cell("no", "warned", detail)


def _tried_cell(pair: PairTruth) -> Cell:
    said = fact_text(pair.driver, lambda status: "yes" if status is P2pStatus.OK else "no")
    wrong = [copy for copy in pair.copies if copy.arrived is not Arrived.RIGHT]
    right = "no" if wrong else "yes" if pair.copies else "-"
    rates = [
        speed.gb_s for speed in pair.speeds if not isinstance(speed.gb_s, Gap) and speed.direction is not Direction.BOTH
    ]
    rate = three_digits(min(rates)) if rates else "-"
    end = pair.end.value
    heat = "bad" if wrong or end in ("wrong", "hang", "crash") else "good" if right == "yes" else "h9"
    detail = f"the driver says {said}; {len(pair.copies)} copies tested, {len(wrong)} of them wrong"
    return Cell(f"{said} / {end if end in ('hang', 'crash') else right} / {rate}", heat, line(pair.problem) or detail)
