"""Parse the text of `nvidia-smi topo -m`, as pasted by a user.

A line that can't be read completely is reported with its line number.
"""
# The text may have tabs or blanks, wrapped or cut lines, and ANSI codes. No value is guessed.

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from preflight.errors import MalformedInput
from preflight.facts.topo_tail import Affinity, nvlink_end, parse_tail

# Colours; a terminal's or a web page's rendering of the ESC byte is any of several characters, or is lost.
ANSI = re.compile(r"(?:\x1b|\x9b|\ufffd|␛|\^\[|\\x1b|\\e|\\033)\[?[0-9;]*m|(?<![\w\[])\[[0-9;]{1,5}m|\[0m(?=\s|$)")
QUOTE = re.compile(r"^(?: {0,3}> ?)+")
INVISIBLE = str.maketrans({"\u00a0": " ", "\u3000": " ", "\ufeff": None, "\u200b": None, "\r": None, "|": " "})

DEVICE = r"GPU\d{1,4}|NIC\d{1,4}|mlx\d+_(?:bond_?)?\d+|[A-Za-z](?=[A-Za-z_.:-]*\d)[A-Za-z0-9_.:-]{0,40}"
TITLES = ("CPU Affinity", "NUMA Affinity", "GPU NUMA ID")
TITLE = "|".join(r"\s*".join(title.replace(" ", "")) for title in TITLES)  # wrapped titles have blanks anywhere
BREAKABLE = ("CPU", "NUMA", "GPU", "ID", "Affinity", "NIC", "mlx")
HEADER_WORD = re.compile(rf"\s*(?:({TITLE})|({DEVICE}))")
CELL = re.compile(r"\s*(NV\d{1,2}|(?:X|PIX|PXB|PHB|NODE|SYS|SOC|C2C|N/A|OK|NS|CNS|GNS|TNS|DR|U)(?=[\sXNPSC\d]|$))")
ROW_NAME = re.compile(rf"\s*({DEVICE})(?=\s|$|X)")
LEVEL = re.compile(r"NV\d{1,2}|PIX|PXB|PHB|NODE|SYS|SOC|C2C")
RULE = re.compile(r"[\s:+=-]*[:+=-]{3}[\s:+=-]*")  # of a table in Markdown
LEGEND = re.compile(r"\s*(?:NIC )?Legend\s*:?", re.IGNORECASE)
LEGEND_NIC = re.compile(r"\s*(NIC\d+)\s*[:=]\s*(\S+)")
GPU_NAME = re.compile(r"\s*GPU (\d{1,4}): (.+?)(?: \(UUID: (GPU-[0-9A-Fa-f-]+)\))?\s*")


@dataclass(frozen=True, slots=True)
class TopologyRow:
    """One row of the topology matrix, with its line number, its connections by column, and its affinities."""

    line: int  # from 1
    name: str
    cells: tuple[str, ...]
    affinity: Affinity


@dataclass(slots=True)
class TopologyMatrix:
    """The parsed topology, with the columns, the rows by name, the names of adapters and GPUs, and unreadable lines."""

    columns: tuple[str, ...]
    titles: tuple[str, ...]
    rows: dict[str, TopologyRow] = field(default_factory=dict)
    nic_names: dict[str, str] = field(default_factory=dict)
    gpu_names: dict[int, tuple[str, str]] = field(default_factory=dict)  # index -> name, UUID or ""
    troubles: list[tuple[int, str]] = field(default_factory=list)


class _Line(NamedTuple):
    """A logical line of the matrix, with the physical lines into which it was broken."""

    number: int
    parts: list[str]


def read_matrix(text: str) -> TopologyMatrix:
    """Return the topology matrix in `text`. Raise MalformedInput if the text has no output of `nvidia-smi topo -m`."""
    lines = [clean_line(line) for line in text.split("\n")]
    start = next((i for i, line in enumerate(lines) if is_header(line)), None)
    if start is None:
        why = "no line names the columns GPU0, GPU1, ..."
        raise MalformedInput(f"this is not the output of `nvidia-smi topo -m`: {why}")
    header, body, after = _gather(lines, start)
    columns, titles = read_header("".join(header.parts))
    matrix = TopologyMatrix(_columns(columns, body), titles)
    if not body:
        raise MalformedInput(f"line {start + 1} names the columns of `nvidia-smi topo -m`, but no row of a GPU follows")
    for line in body:
        _read_row(matrix, line, header)
    if after == len(lines) and text[-1:].strip():
        _doubt_last(matrix, body[-1].number)
    _check_rows(matrix, start + 1)
    _read_names(matrix, [*lines[:start], *lines[after:]])
    return matrix


def _columns(named: tuple[str, ...], body: Sequence[_Line]) -> tuple[str, ...]:
    """Return the devices in the header, or the devices in the rows if the rows name more devices.

    A header may name fewer devices, because two long names can be joined there.
    """
    rows = tuple(match[1] for line in body if (match := ROW_NAME.match(line.parts[0])))
    gpus = [name for name in named if name.startswith("GPU")]
    return rows if len(rows) > len(named) and len({*rows}) == len(rows) and list(rows[: len(gpus)]) == gpus else named


def clean_line(line: str) -> str:
    """Return `line` without color codes, quote marks and invisible characters."""
    return QUOTE.sub("", ANSI.sub("", line.translate(INVISIBLE))).replace("\x1b", "").rstrip("\n")


def is_header(line: str) -> bool:
    """Return whether `line` is the header with the column names of `nvidia-smi topo -m`.

    The header has GPUs, then other devices and titles. The last word may be truncated.
    """
    words, titles = read_header(line)
    rest = HEADER_WORD.sub(" ", line).split()
    if not words or not all(any(each.startswith(part) for each in BREAKABLE) for part in rest):
        return False
    is_gpu = re.fullmatch(r"GPU\d+", words[0]) is not None
    is_named = len({*words}) == len(words) and not any(CELL.fullmatch(word) for word in words)
    return is_gpu and is_named and (bool(titles) or bool(rest) or len(words) > 1)


def read_header(line: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Parse a header line into (devices, titles of the other columns).

    In the line, names may follow each other without a space.
    """
    columns: list[str] = []
    titles: list[str] = []
    for title, device in HEADER_WORD.findall(line):
        if title:
            titles.append(next(each for each in TITLES if re.sub(r"\s", "", each) == re.sub(r"\s", "", title)))
        elif not titles:
            columns.append(device)
    return tuple(columns), tuple(titles)


def _gather(lines: Sequence[str], start: int) -> tuple[_Line, list[_Line], int]:
    """Return the header, the rows, and the index of the line after the matrix.

    A line that starts no row continues the line before it.
    """
    header = _Line(start + 1, [lines[start]])
    rows: list[_Line] = []
    current = header
    known = set(read_header(lines[start])[0])
    i = start + 1
    while i < len(lines) and not LEGEND.match(lines[i]) and not lines[i].lstrip().startswith("```"):
        line = lines[i]
        if rows and is_header(line):
            break  # a second matrix
        if RULE.fullmatch(line):
            pass
        elif _starts_row(line, known, bool(rows)):
            current = _Line(i + 1, [line])
            rows.append(current)
        elif not line.strip():
            if rows and not any(_starts_row(later, known, True) for later in lines[i + 1 : i + 3]):
                break
        elif is_prose(line):
            break
        else:
            current.parts.append(line)
            if current is header:
                known.update(read_header(line)[0])
        i += 1
    return header, rows, i


def _starts_row(line: str, known: set[str], has_rows: bool) -> bool:
    name = ROW_NAME.match(line)
    if name is None:
        return False
    cell = CELL.match(line, name.end())
    is_device = name[1] in known or re.fullmatch(r"(?:GPU|NIC)\d+|mlx\d+_\S+", name[1]) is not None
    return is_device and (cell is not None or (has_rows and name[1] in known) or not line[name.end() :].strip())


def is_prose(line: str) -> bool:
    """Return whether `line` is ordinary text around the matrix, not a row of the matrix."""
    return re.search(r"[a-z]{3,}.*\s[a-z]{2,}|=|:", re.sub(TITLE, "", line)) is not None


def _read_row(matrix: TopologyMatrix, line: _Line, header: _Line) -> None:
    """Read a row into `matrix`.

    The parts of a broken row are joined so that the row has as many cells as there are columns.

    A terminal breaks lines at its width, even in the middle of a word.
    """
    name = ROW_NAME.match(line.parts[0])
    assert name is not None  # _starts_row matched it
    tried = [_parse_row(matrix, name, glue.join(line.parts), line.number, header.parts[0]) for glue in ("", " ")]
    row, trouble = min(tried, key=lambda each: bool(each[1]))
    if row.name in matrix.rows:
        trouble = f"a second row of {row.name}; the first one counts"
    matrix.rows.setdefault(row.name, row)
    if trouble:
        matrix.troubles.append((line.number, trouble))


def _parse_row(
    matrix: TopologyMatrix, name: re.Match[str], text: str, number: int, header: str
) -> tuple[TopologyRow, str]:
    cells: list[str] = []
    at = name.end()
    trouble = ""
    while len(cells) < len(matrix.columns):
        where = f"cell {len(cells) + 1} of {len(matrix.columns)}"
        cell = CELL.match(text, at)
        if cell is None:
            rest = text[at:].split()[:1]
            trouble = f"{where}: {rest[0]!r} is no connection" if rest else f"{where}: the row is cut"
            break
        end = nvlink_end(text, cell.start(1) + 2) if cell[1].startswith("NV") else cell.end()
        if end is None:
            trouble = f"{where}: the CPUs behind {cell[1]!r} run into it"
            break
        cells.append(text[cell.start(1) : end])
        at = end
    if trouble and at == len(text.rstrip()) and cells and cells[-1].startswith("NV"):
        cells.pop()  # the text may be cut within the number: NV1 of NV18
    is_gpu = name[1].startswith("GPU")
    affinity = Affinity.missing(f"line {number}: the row is not whole")
    if not trouble:
        affinity, trouble = parse_tail(text, at, header, matrix.titles if is_gpu else ())
    return TopologyRow(number, name[1], tuple(cells), affinity), trouble


def _doubt_last(matrix: TopologyMatrix, number: int) -> None:
    """If the text may end within the last row, discard this row's affinities and record the reason."""
    for name, row in matrix.rows.items():
        if row.line == number and len(row.affinity.values) < len(matrix.titles) and name.startswith("GPU"):
            why = "the text ends in this row, so its last words may be cut"
            matrix.rows[name] = replace(row, affinity=Affinity.missing(f"line {number}: {why}"))
            matrix.troubles.append((number, why))


def _check_rows(matrix: TopologyMatrix, header_line: int) -> None:
    """Report devices that have a column but no row, and rows whose X is not on the diagonal."""
    missing = (name for name in matrix.columns if name not in matrix.rows)
    matrix.troubles += ((header_line, f"{name} has a column and no row: the text is cut") for name in missing)
    for row in matrix.rows.values():
        marks = [i for i, cell in enumerate(row.cells) if cell == "X"]
        if any(matrix.columns[i] != row.name for i in marks):
            matrix.troubles.append((row.line, f"the X of {row.name} stands below {matrix.columns[marks[0]]}"))


def _read_names(matrix: TopologyMatrix, lines: Sequence[str]) -> None:
    for line in lines:
        nic, gpu = LEGEND_NIC.fullmatch(line.rstrip()), GPU_NAME.fullmatch(line)
        if nic:
            matrix.nic_names.setdefault(nic[1], nic[2])
        if gpu:
            matrix.gpu_names.setdefault(int(gpu[1]), (gpu[2].strip(), gpu[3] or ""))
