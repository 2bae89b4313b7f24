"""Read what stands behind the connections in a row of `nvidia-smi topo -m`: affinities, by title and place."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from preflight.errors import UnreadableFact
from preflight.probe.reading import parse_cpu_list

CPU, NUMA, GPU_NUMA = "CPU Affinity", "NUMA Affinity", "GPU NUMA ID"
NOT_GIVEN = "N/A"
LIST = re.compile(r"\d{1,6}(?:-\d{1,6})?(?:,\d{1,6}(?:-\d{1,6})?)*,?")
NOT_IN_TEXT = "the text does not show it"


@dataclass(frozen=True, slots=True)
class Affinity:
    """The columns of one row by title; a value that the text does not give has a reason in `reasons`."""

    values: tuple[tuple[str, str], ...]
    reason: str

    @staticmethod
    def missing(reason: str) -> Affinity:
        """Return that nothing is known, for this reason."""
        return Affinity((), reason)

    def get(self, title: str) -> str:
        """Return the column's text; UnreadableFact where there is none."""
        value = dict(self.values).get(title)
        if value is None:
            raise UnreadableFact(self.reason)
        if value == NOT_GIVEN:
            raise UnreadableFact(f"nvidia-smi says {NOT_GIVEN}")
        return value


def parse_tail(text: str, at: int, header: str, titles: Sequence[str]) -> tuple[Affinity, str]:
    """Return the affinities behind column `at` and what could not be read of them, "" if nothing."""
    words = [(match.start() + at, match[0]) for match in re.finditer(r"\S+", text[at:])]
    words = [piece for place, word in words for piece in split_word(place, word)]
    bad = next((word for _, word in words if word != NOT_GIVEN and not LIST.fullmatch(word)), None)
    if bad is not None:
        return Affinity.missing(f"{bad!r} is no affinity"), f"{bad!r} is no affinity"
    if not titles:
        return Affinity.missing(NOT_IN_TEXT), f"{words[0][1]!r} stands below no title" if words else ""
    if len(words) > len(titles):
        why = f"{len(words)} affinities below {len(titles)} titles"
        return Affinity.missing(why), why
    if len(words) == len(titles):
        return Affinity(tuple(zip(titles, (word for _, word in words), strict=True)), NOT_IN_TEXT), ""
    return _by_place(text, words, header, titles)


def split_word(place: int, word: str) -> list[tuple[int, str]]:
    """Return `0N/A` as `0` and `N/A`: two columns that ran into each other."""
    pieces = [piece for piece in re.split(rf"({re.escape(NOT_GIVEN)})", word) if piece]
    return [(place + word.index(piece), piece) for piece in pieces]


def _by_place(text: str, words: Sequence[tuple[int, str]], header: str, titles: Sequence[str]) -> tuple[Affinity, str]:
    """Give each word to the title that stands nearest above it; a list that holds the next column's number is split."""
    header = "\t" + header.lstrip()  # pasting loses the blank above the rows' names
    starts = [_column(header, header.find(title)) for title in titles]
    found: dict[str, str] = {}
    for place, word in words:
        free = [i for i in range(len(titles)) if titles[i] not in found]
        nearest = min(free, key=lambda i: (abs(starts[i] - _column(text, place)), -i))
        found[titles[nearest]] = word
    if CPU in found and NUMA not in found and NUMA in titles and found[CPU] != NOT_GIVEN and GPU_NUMA in found:
        split = split_joined(found[CPU])
        if split is None:
            why = f"{found[CPU]!r} may be two columns run together"
            return Affinity(tuple((t, v) for t, v in found.items() if t == GPU_NUMA), why), why
        found[CPU], found[NUMA] = split
    blank = NOT_IN_TEXT if words else "the columns are empty"
    return Affinity(tuple(found.items()), blank), ""


def _column(text: str, place: int) -> int:
    return len(text[: max(place, 0)].expandtabs(8))


def split_joined(word: str) -> tuple[str, str] | None:
    """Return `0-47,96-1430` as CPUs `0-47,96-143` and node `0`: the one split in which all ranges are equally long."""
    good = []
    for digits in (1, 2):
        cpus, node = word[:-digits], word[-digits:]
        if node.isdigit() and re.search(r"\d$", cpus) and _even(cpus) and str(int(node)) == node:
            good.append((cpus, node))
    return good[0] if len(good) == 1 and not _even(word) else None


def _even(cpus: str) -> bool:
    spans = [part.split("-") for part in cpus.split(",")]
    if len(spans) < 2 or any(len(span) != 2 for span in spans):
        return False
    try:
        parse_cpu_list(cpus)
    except UnreadableFact:
        return False
    return len({int(last) - int(first) for first, last in spans}) == 1
