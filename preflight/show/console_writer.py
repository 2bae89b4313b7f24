"""Format a document as text for a terminal: wrapped to the terminal's width, in color if the terminal has colors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from preflight.model.finding import Finding, Severity
from preflight.show.document import Amount, Block, Code, Findings, Heading, Items, Limit, Matrix, Table, Text
from preflight.show.text import INDENT, UNKNOWN, Style, clean, shorten, width_of, wrap

RESET = "\x1b[0m"
CODES = {"bold": "\x1b[1m", "dim": "\x1b[2m", "red": "\x1b[1;31m", "yellow": "\x1b[1;33m", "green": "\x1b[1;32m"}
# The characters of our own that a terminal without Unicode can't show; each keeps its width.
ASCII = str.maketrans({"µ": "u", "…": "~", "·": "-", "─": "-", "│": "|", "┼": "+"})
SEVERITIES = {Severity.FAIL: "red", Severity.WARN: "yellow", Severity.INFO: "dim"}
BAR, LINE, CROSS = "│", "─", "┼"
SELF = "X"
NAME_COLUMNS, AMOUNT_COLUMNS = 31, 10
ROOM_FOR_BREAKS = 24  # columns that a wrap leaves empty at the ends of two lines
NARROW = 64  # on fewer columns, the remark on an amount is on lines of its own


def page(blocks: Sequence[Block], style: Style) -> str:
    """Return the document `blocks` as text for a terminal that has the properties of `style`."""
    return finish(lines_of(blocks, style), style)


def finish(lines: Sequence[str], style: Style) -> str:
    """Return the lines as one text. The text is ASCII if the terminal does not support Unicode."""
    text = "\n".join(line.rstrip() for line in lines) + "\n"
    return text if style.unicode else text.translate(ASCII).encode("ascii", "replace").decode("ascii")


def lines_of(blocks: Sequence[Block], style: Style) -> list[str]:
    """Return the lines of the blocks. No line is wider than the width in `style`."""
    return [line for block in blocks for line in _lines(block, style)]


def _lines(block: Block, style: Style) -> list[str]:  # noqa: PLR0911  one for each kind of block
    match block:
        case Heading():
            title = shorten(clean(block.title), _limit(block.limit, style.width))
            return heading(block.label + title, style)
        case Text():
            return _text(block, style)
        case Items():
            rows = [(clean(name), clean(value)) for name, value in block.rows]
            return pairs(rows, style.width, " " * block.indent)
        case Amount():
            return _amount(block, style)
        case Code():
            return [line for command in block.rows for line in _command(clean(command), block, style)]
        case Table():
            return _table(block, style)
        case Matrix():
            return _matrix(block, style)
        case Findings():
            return [line for finding in block.findings for line in _finding(finding, style)]


def paint(text: str, tone: str, style: Style) -> str:
    """Return `text` in the color `tone`, or unchanged if the terminal has no colors."""
    return f"{CODES[tone]}{text}{RESET}" if style.colour and tone else text


def heading(title: str, style: Style) -> list[str]:
    """Return the lines of a section's title: an empty line, then `title`."""
    return ["", paint(title, "bold", style)]


def _text(block: Text, style: Style) -> list[str]:
    first = " " * block.indent + block.label
    rest = first if block.hang is None else " " * block.hang
    start = f"{first}{clean(block.head)} "
    if block.head and width_of(start) > style.width // 2:
        return [shorten(start.rstrip(), style.width), *_text(replace(block, head="", indent=block.hang or 0), style)]
    first = start if block.head else first
    text = shorten(clean(block.text), _limit(block.limit, style.width))
    names = ", ".join(shorten(clean(name), style.width // 3) for name in block.names)
    lines = wrap(f"{names}: {text}" if names else text, style.width, first, rest)
    if block.most_lines and len(lines) > block.most_lines:
        room = block.most_lines * (style.width - width_of(first)) - ROOM_FOR_BREAKS
        lines = wrap(_from_the_part(text, clean(block.shown), room), style.width, first, rest)
    if block.most_lines and len(lines) > block.most_lines:
        lines = [*lines[: block.most_lines - 1], shorten(f"{lines[block.most_lines - 1]} …", style.width)]
    if block.label_tone:
        word = block.label.rstrip(": ")
        lines[0] = lines[0].replace(word, paint(word, block.label_tone, style), 1)
    return [paint(line, block.tone, style) for line in lines]


def _from_the_part(text: str, part: str, room: int) -> str:
    """Return `text`, without its beginning if `part` would otherwise be outside the first `room` columns."""
    at = text.find(part) if part else -1
    if at + min(len(part), room // 2) <= room:
        return text
    begins = at - room // 4
    word = text.find(" ", begins, begins + room // 8)
    return f"… {text[word + 1 :]}" if word >= 0 else f"…{text[begins:]}"


def pairs(items: Sequence[tuple[str, str]], width: int, indent: str = INDENT) -> list[str]:
    """Return `items` as lines of a name and a value, with the values in a column.

    A line has at most `width` columns and starts with `indent`.
    """
    # A long value wraps in the column.
    column = min(max((width_of(name) for name, _ in items), default=0), width // 3)
    lines: list[str] = []
    for name, value in items:
        label = shorten(name, column)
        start = indent + label + " " * (column - width_of(label)) + INDENT
        lines.extend(line.rstrip() for line in wrap(value, width, start, " " * width_of(start)))
    return lines


def _command(command: str, block: Code, style: Style) -> list[str]:
    """Return a command as a user types it; a command that is wider than the terminal is wrapped."""
    indent = " " * block.indent
    is_wide = block.is_wrapped and width_of(indent + command) > style.width
    return wrap(command, style.width, indent, indent + INDENT) if is_wide else [indent + command]


def _amount(block: Amount, style: Style) -> list[str]:
    names = min(NAME_COLUMNS, style.width - AMOUNT_COLUMNS - len(INDENT))
    name = shorten(" " * (block.indent - len(INDENT)) + clean(block.name), names)
    start = f"{INDENT}{name:<{names}}{block.amount:>{AMOUNT_COLUMNS}}"
    if style.width < NARROW and block.text:
        return [start, *wrap(clean(block.text), style.width, INDENT * 3)]
    lines = wrap(clean(block.text), style.width, start + INDENT, " " * width_of(start + INDENT))
    return [line.rstrip() for line in lines]


def _table(block: Table, style: Style) -> list[str]:
    """Return the lines of the table, without columns that do not fit into the width."""
    limits = [_limit(column.limit, style.width) for column in block.columns]
    cells = [[shorten(clean(c), limit) for c, limit in zip(row, limits, strict=True)] for row in block.rows]
    lines: list[str] = []
    for dropped in sorted({column.drop or 99 for column in block.columns}, reverse=True):
        kept = [i for i, column in enumerate(block.columns) if column.drop < dropped]
        lines = _drawn(block, cells, kept)
        if max(map(width_of, lines)) <= style.width:
            break
    head, *rows = [shorten(line, style.width) for line in lines]
    over = _over(block, head)
    notes = [_text(Text(text, indent=4, tone="dim"), style) if text else [] for text in block.below]
    shown = [line for row, below in zip(rows, notes or [[]] * len(rows), strict=True) for line in (row, *below)]
    return [*over, *([head] if block.has_headers else []), *shown]


def _limit(limit: Limit | None, width: int) -> int:
    return 10_000 if limit is None else limit if isinstance(limit, int) else limit(width)


def _drawn(block: Table, cells: Sequence[Sequence[str]], kept: Sequence[int]) -> list[str]:
    from tabulate import tabulate  # noqa: PLC0415  a quarter of what `--help` imports, and it draws no table

    columns = [block.columns[i] for i in kept]
    align = ["right" if column.is_right else "left" for column in columns]
    rows = [[row[i] for i in kept] for row in cells]
    headers = [column.title for column in columns]
    text = tabulate(rows, headers=headers, tablefmt="plain", colalign=align if rows else None, disable_numparse=True)
    return [(" " * block.indent + line).rstrip() for line in text.splitlines()]


def _over(block: Table, header: str) -> list[str]:
    """Return the line above the header, which has the titles that several columns share.

    If no titles are shared, return [].
    """
    line = ""
    end = 0
    for column in block.columns:
        found = header.find(column.title, end) if column.over else -1
        if found >= 0:  # else it was cut off by a narrow terminal
            end = found + len(column.title)
            line = line.ljust(end - len(column.over)) + column.over
    return [line] if any(column.over for column in block.columns) else []


def _finding(finding: Finding, style: Style) -> list[str]:
    word = finding.severity.name
    about = f"{finding.check} · {finding.subject} [{finding.blame.value}]"
    tone = SEVERITIES[finding.severity]
    parts = [Text(about, 2, 8, label=f"{word:<6}", label_tone=tone), Text(finding.problem, 8)]
    for each in finding.evidence:
        name = shorten(clean(each.what), style.width // 3)
        parts.append(Text(f"{each.value} ({each.source})", 8, 10, label=f"{name}: "))
    for label, text in (("fix: ", finding.fix), ("workaround: ", finding.workaround)):
        parts += [Text(text, 8, 10, label=label)] if text else []
    return lines_of(parts, style)


def _matrix(block: Matrix, style: Style) -> list[str]:
    """Return the lines of the matrix, with bars between the blocks.

    If the terminal is narrow, the matrix is split into several parts.
    """
    label = max(width_of(name) for names in block.rows for name in names)
    longest = [4, *(width_of(name) for names in block.columns for name in names), *map(width_of, block.cells.values())]
    cell = 1 + max(longest)
    room = max(1, (style.width - len(INDENT) - label) // (cell + 1))
    flat = [(name, i) for i, names in enumerate(block.columns) for name in names]
    lines: list[str] = []
    for start in range(0, len(flat), room):
        columns = flat[start : start + room]
        # Each column, and whether a new block begins with it.
        part = [(name, i > 0 and columns[i - 1][1] != number) for i, (name, number) in enumerate(columns)]
        notes = block.notes if start + room >= len(flat) else {}
        lines += [shorten(line.rstrip(), style.width) for line in _part(block, part, notes, label, cell)]
    return lines


def _part(
    block: Matrix, part: Sequence[tuple[str, bool]], notes: Mapping[str, str], label: int, cell: int
) -> list[str]:
    def row(name: str, values: Sequence[str]) -> str:
        pieces = zip(values, part, strict=True)
        words = ((f" {BAR}" if new else "") + " " * (cell - width_of(value)) + value for value, (_, new) in pieces)
        return INDENT + name + " " * (label - width_of(name)) + "".join(words) + f"  {notes.get(name, '')}"

    lines = [row("", [name for name, _ in part])]
    for number, names in enumerate(block.rows):
        if number:
            lines.append(INDENT + LINE * label + "".join((LINE + CROSS) * new + LINE * cell for _, new in part))
        for name in names:
            values = (SELF if name == column else block.cells.get((name, column), UNKNOWN) for column, _ in part)
            lines.append(row(name, list(values)))
    return lines
