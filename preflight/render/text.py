"""Text for a terminal: visible escapes for what comes from outside, wrapping by display width, colour."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

RESET = "\x1b[0m"
CODES = {"bold": "\x1b[1m", "dim": "\x1b[2m", "red": "\x1b[1;31m", "yellow": "\x1b[1;33m", "green": "\x1b[1;32m"}
# The characters of our own that a terminal without Unicode can't show; each keeps its width.
ASCII = str.maketrans({"µ": "u", "…": "~", "·": "-", "─": "-", "│": "|", "┼": "+"})
INDENT = "  "


@dataclass(frozen=True, slots=True)
class Style:
    """What the terminal can do."""

    width: int = 80
    colour: bool = False
    unicode: bool = True


def clean(text: str) -> str:
    """Return text from outside with what is invisible or harmful made visible: ESC, CR, bidi marks, lone surrogates."""
    return "".join(char if _is_harmless(char) else _escape(char) for char in text)


def width_of(text: str) -> int:
    """Return how many columns a terminal gives to cleaned text."""
    return sum(_columns(char) for char in text)


def shorten(text: str, width: int) -> str:
    """Return cleaned text in at most `width` columns, with an ellipsis where some was cut."""
    if width_of(text) <= width:
        return text
    return _head(text, max(0, width - 1)) + "…"


def wrap(text: str, width: int, first: str = "", rest: str | None = None) -> list[str]:
    """Return cleaned text as lines of at most `width` columns; words that are longer than a line are cut.

    `first` and `rest` are the indents of the first line and of the others.
    """
    rest = first if rest is None else rest
    lines: list[str] = []
    line, empty = first, True
    for word in text.split(" "):
        if not word:
            continue
        if not empty and width_of(line) + 1 + width_of(word) > width:
            lines, line, empty = [*lines, line], rest, True
        pieces = _cut(word, max(1, width - max(width_of(line), width_of(rest)))) if empty else [word]
        for i, piece in enumerate(pieces):
            if i:
                lines, line = [*lines, line], rest
            line = line + piece if empty or i else f"{line} {piece}"
        empty = False
    return [*lines, line]


def paint(text: str, colour: str, style: Style) -> str:
    """Return the text in a colour, or as it is where the terminal has none."""
    return f"{CODES[colour]}{text}{RESET}" if style.colour else text


def heading(title: str, style: Style) -> list[str]:
    """Return a section's title below an empty line."""
    return ["", paint(title, "bold", style)]


def table(headers: Sequence[str], rows: Sequence[Sequence[str]], width: int, right: Sequence[int] = ()) -> list[str]:
    """Return an indented table of cleaned cells; the columns in `right` are aligned at their right."""
    from tabulate import tabulate  # noqa: PLC0415  a quarter of what `--help` imports, and it draws no table

    align = ["right" if column in right else "left" for column in range(len(headers))]
    text = tabulate(rows, headers=headers, tablefmt="plain", colalign=align if rows else None, disable_numparse=True)
    return [shorten((INDENT + line).rstrip(), width) for line in text.splitlines()]


def pairs(items: Sequence[tuple[str, str]], width: int, indent: str = INDENT) -> list[str]:
    """Return `name  value` lines with the values in one column, wrapped below themselves."""
    column = min(max((width_of(name) for name, _ in items), default=0), width // 3)
    lines: list[str] = []
    for name, value in items:
        label = shorten(name, column)
        start = indent + label + " " * (column - width_of(label)) + INDENT
        lines.extend(line.rstrip() for line in wrap(value, width, start, " " * width_of(start)))
    return lines


def finish(lines: Sequence[str], style: Style) -> str:
    """Return the page, in ASCII where the terminal knows nothing else."""
    text = "\n".join(line.rstrip() for line in lines) + "\n"
    return text if style.unicode else text.translate(ASCII).encode("ascii", "replace").decode("ascii")


def ranges(numbers: Sequence[int]) -> str:
    """Return `0-3,8` for 0 1 2 3 8."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][-1] + 1:
            runs[-1] = [runs[-1][0], number]
        else:
            runs.append([number])
    return ",".join("-".join(map(str, run)) for run in runs) or "none"


def _is_harmless(char: str) -> bool:
    # Combining marks are printable, take no column, and many of them smear over the lines around.
    return char.isprintable() and unicodedata.category(char) not in ("Mn", "Me")


def _escape(char: str) -> str:
    code = ord(char)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _columns(char: str) -> int:
    return 2 if unicodedata.east_asian_width(char) in ("W", "F") else 1


def _head(text: str, width: int) -> str:
    """Return as much of the text's beginning as fits."""
    used = 0
    for i, char in enumerate(text):
        used += _columns(char)
        if used > width:
            return text[:i]
    return text


def _cut(word: str, width: int) -> list[str]:
    pieces = []
    while word:
        piece = _head(word, width) or word[0]
        pieces.append(piece)
        word = word[len(piece) :]
    return pieces
