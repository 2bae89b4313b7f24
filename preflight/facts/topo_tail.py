"""Parse the CPU and NUMA affinities at the end of a row of `nvidia-smi topo -m`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from preflight.errors import UnreadableFact
from preflight.facts.reading import gap_or, parse_cpu_list
from preflight.model.facts import Gap

CPU, NUMA, GPU_NUMA = "CPU Affinity", "NUMA Affinity", "GPU NUMA ID"
NOT_GIVEN = "N/A"
LIST = re.compile(r"\d{1,6}(?:-\d{1,6})?(?:,\d{1,6}(?:-\d{1,6})?)*,?")
NOT_IN_TEXT = "the text does not show it"


@dataclass(frozen=True, slots=True)
class Affinity:
    """The affinity columns of one row.

    `values` has (column title, text) pairs. `reason` says why a column is missing.
    """

    values: tuple[tuple[str, str], ...]
    reason: str

    @staticmethod
    def missing(reason: str) -> Affinity:
        """Return an affinity without any values. `reason` says why the values are missing."""
        return Affinity((), reason)

    def get(self, title: str) -> str:
        """Return the text of the column `title`.

        Raise UnreadableFact with the reason if the column has no text.
        """
        value = dict(self.values).get(title)
        if value is None:
            raise UnreadableFact(self.reason)
        if value == NOT_GIVEN:
            raise UnreadableFact(f"nvidia-smi says {NOT_GIVEN}")
        return value


def parse_tail(text: str, at: int, header: str, titles: Sequence[str]) -> tuple[Affinity, str]:
    """Return (affinities, message) from the part of the row `text` that begins at position `at`.

    The message says which part of the row is unreadable. It is "" if all parts could be read.
    """
    # `text` is the row. `header` is the line of column names. `titles` are the titles of the affinity columns in
    # `header`.
    # Two columns may run into each other: `0N/A` is `0` and `N/A`.
    piece = re.compile(rf"{re.escape(NOT_GIVEN)}|(?:(?!{re.escape(NOT_GIVEN)})\S)+")
    words = [(match.start(), match[0]) for match in piece.finditer(text, at)]
    bad = next((word for _, word in words if word != NOT_GIVEN and not _is_cpu_list(word)), None)
    if bad is not None or len(set(titles)) < len(titles):
        return _without({}, (), "a title stands there twice" if bad is None else f"{bad!r} is no affinity")
    if not titles:
        return Affinity.missing(NOT_IN_TEXT), f"{words[0][1]!r} stands below no title" if words else ""
    if len(words) > len(titles):
        return _without({}, (), f"{len(words)} affinities below {len(titles)} titles")
    if len(words) == len(titles):
        return Affinity(tuple(zip(titles, (word for _, word in words), strict=True)), NOT_IN_TEXT), ""
    if len(words) == 2 and len(titles) == 3:
        return _two_of_three(words[0][1], words[1][1])
    return _by_place(text, words, header, titles)


def _two_of_three(first: str, last: str) -> tuple[Affinity, str]:
    """Return the affinities in a row with two words but three column titles.

    The first word then holds two joined columns, because nvidia-smi never omits just one of the three.
    """
    split = split_joined(first)
    if split is not None:
        return Affinity(((CPU, split[0]), (NUMA, split[1]), (GPU_NUMA, last)), NOT_IN_TEXT), ""
    if last == NOT_GIVEN:
        return _without({CPU: first, GPU_NUMA: last}, (CPU,), f"{first!r} holds two columns run together")
    return _without({}, (), f"{first!r} and {last!r} are three columns, of which two ran together")


def _by_place(text: str, words: Sequence[tuple[int, str]], header: str, titles: Sequence[str]) -> tuple[Affinity, str]:
    """Return (affinities, message). Each word is assigned to the nearest column title.

    The message names a word that could not be assigned, or is "". If a word joins CPUs and a NUMA node, the word is
    split.
    """
    header = "\t" + header.lstrip()  # pasting loses the blank above the rows' names
    starts = [_column(header, header.find(title)) for title in titles]
    found: dict[str, str] = {}
    for place, word in words:
        free = [i for i in range(len(titles)) if titles[i] not in found]
        nearest = min(free, key=lambda i: (abs(starts[i] - _column(text, place)), -i))
        found[titles[nearest]] = word
    if CPU in found and NUMA in titles and NUMA not in found and found[CPU] != NOT_GIVEN:
        split = split_joined(found[CPU])
        if split is None:
            return _without(found, (CPU,), f"{found[CPU]!r} may be two columns run together")
        found[CPU], found[NUMA] = split
    blank = NOT_IN_TEXT if words else "the columns are empty"
    return Affinity(tuple(found.items()), blank), ""


def _without(found: dict[str, str], titles: Sequence[str], why: str) -> tuple[Affinity, str]:
    return Affinity(tuple((title, word) for title, word in found.items() if title not in titles), why), why


def nvlink_end(text: str, at: int) -> int | None:
    """Return the position in `text` after the NVLink count that begins at `at`.

    Return None if it is unclear where the count ends and the CPU numbers begin.
    """
    # CPU numbers may follow the count without a blank. `NV212-23,36-47` means 2 links and the CPUs 12-23,36-47, because
    # only this split gives ranges of equal length.
    run = re.compile(r"(\d+)[\d,-]*").match(text, at)
    if run is None:
        return None
    if len(run[1]) <= 2 and run[0] == run[1]:
        return run.end()
    ends = [at + digits for digits in (1, 2) if _is_cpu_list(text[at + digits : run.end()])]
    even = [end for end in ends if _even(text[end : run.end()])]
    return even[0] if len(even) == 1 else ends[0] if len(ends) == 1 else None


def _is_cpu_list(text: str) -> bool:
    is_list = LIST.fullmatch(text) and not re.search(r"(?<!\d)0\d", text)
    return bool(is_list) and not isinstance(gap_or(lambda: parse_cpu_list(text)), Gap)


def _column(text: str, place: int) -> int:
    return len(text[: max(place, 0)].expandtabs(8))


def split_joined(word: str) -> tuple[str, str] | None:
    """Split a word that joins CPUs and a NUMA node, such as `0-47,96-1430` into `0-47,96-143` and `0`.

    Return None unless exactly one split gives ranges of equal length.
    """
    good = []
    for digits in (1, 2):
        cpus, node = word[:-digits], word[-digits:]
        if node.isascii() and node.isdigit() and re.search(r"\d$", cpus) and _even(cpus) and str(int(node)) == node:
            good.append((cpus, node))
    return good[0] if len(good) == 1 and not _even(word) else None


def _even(cpus: str) -> bool:
    spans = [part.split("-") for part in cpus.split(",")]
    if len(spans) < 2 or any(len(span) != 2 for span in spans):
        return False
    return (
        not isinstance(gap_or(lambda: parse_cpu_list(cpus)), Gap)
        and len({int(last) - int(first) for first, last in spans}) == 1
    )
