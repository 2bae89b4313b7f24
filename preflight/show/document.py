"""The blocks of a page, such as tables and paragraphs.

The writer for each output format must escape the texts, because a text may come from outside.
"""
# Each output format has its own writer for the blocks. The writers also make invisible characters visible.

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from preflight.model.finding import Finding
from preflight.show.text import UNKNOWN

Limit = int | Callable[[int], int]  # characters, also as a share of the page's width


@dataclass(frozen=True, slots=True)
class Heading:
    """The title of a section of a page."""

    title: str
    label: str = ""  # before it, and never cut
    limit: Limit | None = None


@dataclass(frozen=True, slots=True)
class Text:
    """A paragraph with an optional label.

    `indent` is the number of columns before the first line. `hang` is the number of columns before the other lines.
    """

    text: str
    indent: int = 0
    hang: int | None = None  # None: as the first line
    label: str = ""
    head: str = ""  # a long label from outside, on a line of its own if it takes more than half of the width
    label_tone: str = ""
    tone: str = ""
    names: tuple[str, ...] = ()  # what the text is about; long names are cut
    limit: Limit | None = None
    most_lines: int | None = None
    shown: str = ""  # the part of the text that stays if the text is cut to `most_lines`


@dataclass(frozen=True, slots=True)
class Items:
    """A list of names with their values, printed in two columns."""

    rows: Sequence[tuple[str, str]]
    indent: int = 2
    are_code: bool = False  # the names are shown as code


@dataclass(frozen=True, slots=True)
class Amount:
    """One item of an itemized total: a name, an amount and a remark. The amounts of consecutive lines are aligned."""

    name: str
    amount: str
    text: str
    indent: int = 2


@dataclass(frozen=True, slots=True)
class Code:
    """A block of commands, printed as a user types them."""

    rows: tuple[str, ...]
    indent: int = 4
    is_wrapped: bool = True  # False for columns that other programs read


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table."""

    title: str
    is_right: bool = False  # figures, aligned at their right
    limit: Limit | None = None
    over: str = ""  # on a line above the header; distinguishes columns with the same title
    drop: int = 0  # if there is no room, the columns with the highest number are left out first; 0: never
    is_code: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """A table with column headers. `below` has a text to print below each row, or ""."""

    columns: tuple[Column, ...]
    rows: tuple[Sequence[str], ...]
    indent: int = 2
    has_headers: bool = True
    below: tuple[str, ...] = ()
    caption: str = ""

    def only(self, kept: Iterable[int]) -> Table:
        """Return the table with only the columns in `kept`. The column numbers start at 0."""
        kept = list(kept)
        columns = tuple(self.columns[i] for i in kept)
        return replace(self, columns=columns, rows=tuple([row[i] for i in kept] for row in self.rows))

    def known(self) -> Table:
        """Return the table without the columns whose values are all unknown. The first column always stays."""
        used = [i for i in range(len(self.columns)) if i == 0 or any(row[i] != UNKNOWN for row in self.rows)]
        return self.only(used)


@dataclass(frozen=True, slots=True)
class Matrix:
    """A matrix of cells by row name and column name.

    `rows` and `columns` have the names in groups, such as the GPUs of one NUMA node.
    """

    # `notes` has a remark for each row.

    rows: Sequence[Sequence[str]]
    columns: Sequence[Sequence[str]]
    cells: Mapping[tuple[str, str], str]
    notes: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Findings:
    """The problems found by checks, the most severe problem first."""

    findings: tuple[Finding, ...]


Block = Heading | Text | Items | Amount | Code | Table | Matrix | Findings
BLANK = Text("")


def table(headers: Sequence[str | Column], rows: Iterable[Sequence[str]], caption: str = "") -> Table:
    """Return a table with these headers and rows. A header that is a string becomes a column of words."""
    columns = tuple(Column(each) if isinstance(each, str) else each for each in headers)
    return Table(columns, tuple(rows), caption=caption)


def right(title: str, over: str = "", drop: int = 0) -> Column:
    """Return a column of right-aligned numbers with the title `title`.

    If there is no room, the columns with the highest `drop` are left out first. Columns with `drop` 0 are never left
    out.
    """
    # `over` is printed above the title.
    return Column(title, is_right=True, over=over, drop=drop)


def figures(*titles: str) -> tuple[Column, ...]:
    """Return one column of right-aligned numbers for each title."""
    return tuple(map(right, titles))


def section(title: str, *blocks: Block) -> list[Block]:
    """Return a heading and the blocks below it, or [] if every block is empty."""
    full = [each for each in blocks if not isinstance(each, Items | Table | Code) or each.rows]
    return [Heading(title), *full] if full else []


def note(text: str) -> Text:
    """Return a paragraph that is indented like the text of a section."""
    return Text(text, indent=2)


def item(text: str, indent: int = 2) -> Text:
    """Return a list item as a paragraph. `indent` is the number of columns in front of the first line."""
    return Text(text, indent=indent, hang=indent + 2)


def bullet(text: str) -> Text:
    """Return a list item as a paragraph that begins with a dash."""
    return Text(text, indent=2, hang=4, label="- ")


def listed(names: Sequence[str], most: int) -> str:
    """Return at most `most` names as text, and how many names are left out: `a, b and 3 more`."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def grouped(entries: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """Return the names for each text, as {text: names}. `entries` has pairs (text, name)."""
    alike: dict[str, list[str]] = {}
    for text, name in entries:
        alike.setdefault(text, []).append(name)
    return alike


def answer_line(word: str, tone: str, text: str) -> Text:
    """Return the first line of a page: the verdict `word` in the color `tone`, and the reason `text`."""
    return Text(text, hang=2, label=f"{word}  ", label_tone=tone)
