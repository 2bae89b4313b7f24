"""Busbw over message size as an SVG: pygal computes the plot; classes, title and description are the page's."""

from __future__ import annotations

import math
import re
import sys
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from preflight.model.collective import Collective
from preflight.model.facts import Gap
from preflight.model.links import Expected
from preflight.model.report import Report
from preflight.model.trial import CollectiveResult
from preflight.model.units import rate_text, size_text
from preflight.render.text import line

# Narrow, so that a phone need not shrink it much; the page gives the letters their size.
WIDTH, HEIGHT = 480, 270
MOST_LABELS = 5
LONG_NUMBER = re.compile(r"(\d+\.\d)\d+")
POSITIONS = frozenset({"d", "x", "y", "cx", "cy", "transform"})


@dataclass(frozen=True, slots=True)
class Series:
    """What a candidate reached at each size, in GB/s of busbw."""

    name: str
    points: tuple[tuple[int, float], ...]
    wrong: bool  # of some size the data was wrong


@dataclass(frozen=True, slots=True)
class Chart:
    """A collective's plot, and the numbers that it is made of."""

    collective: str
    svg: str
    series: tuple[Series, ...]
    sizes: tuple[int, ...]
    expected: tuple[Expected, ...]
    summary: str


def charts(report: Report) -> tuple[Chart, ...]:
    """Return a chart for each collective that a trial measured at two sizes or more."""
    made = (_chart(report, collective, number) for number, collective in enumerate(Collective))
    return tuple(chart for chart in made if chart is not None)


def _chart(report: Report, collective: Collective, number: int) -> Chart | None:
    series = tuple(each for each in (_series(report, collective, i) for i in range(len(report.trials))) if each.points)
    sizes = tuple(sorted({size for each in series for size, _ in each.points}))
    if len(sizes) < 2:
        return None
    listed = () if isinstance(report.expected, Gap) else report.expected
    expected = tuple(sorted((e for e in listed if e.what == collective.value and e.size_bytes in sizes),
                            key=lambda each: each.size_bytes))  # fmt: skip
    summary = _summary(series, expected)
    svg = _svg(series, sizes, expected, f"chart-{number}", f"busbw of {collective.value} over message size", summary)
    return Chart(collective.value, svg, series, sizes, expected, summary)


def _series(report: Report, collective: Collective, place: int) -> Series:
    trial = report.trials[place]
    same = [each for each in trial.results if each.collective is collective]
    points = {each.size_bytes: each.busbw_gb_s for each in same if _can_be_drawn(each)}
    known = tuple((size, rate) for size, rate in sorted(points.items()) if not isinstance(rate, Gap))
    return Series(line(trial.candidate), known, not all(each.verified for each in same))


def _can_be_drawn(result: CollectiveResult) -> bool:
    """Tell whether a logarithmic scale has a place for it; one rank alone moves nothing over a bus."""
    rate = result.busbw_gb_s
    return not isinstance(rate, Gap) and 1e-9 < rate < 1e9 and 0 < result.size_bytes < 1 << 60


def _summary(series: Sequence[Series], expected: Sequence[Expected]) -> str:
    parts = []
    for each in series:
        size, rate = each.points[-1]
        parts.append(f"{each.name} reaches {rate_text(rate)} at {size_text(size)}")
    if expected:
        last = expected[-1]
        low, high = rate_text(last.low_gb_s), rate_text(last.high_gb_s)
        parts.append(f"the links should give {low} to {high} at {size_text(last.size_bytes)}")
    return "; ".join(parts) + "."


def _pygal() -> tuple[Any, Any]:
    """Return pygal and its style: loaded for this page only, since it takes a tenth of a second.

    It leaves a finder in sys.meta_path that only Python 2 could use; every later import would warn about it.
    """
    before = list(sys.meta_path)
    import pygal  # noqa: PLC0415  only for a page with a chart
    from pygal.style import Style  # noqa: PLC0415  with pygal

    sys.meta_path[:] = [finder for finder in sys.meta_path if finder in before or hasattr(finder, "find_spec")]
    return pygal, Style


def _svg(
    series: Sequence[Series], sizes: Sequence[int], expected: Sequence[Expected], name: str, title: str, summary: str
) -> str:
    pygal, Style = _pygal()  # noqa: N806

    rates = [rate for each in series for _, rate in each.points] + [e.high_gb_s for e in expected if e.high_gb_s > 0]
    chart = pygal.XY(
        width=WIDTH, height=HEIGHT, margin=4, margin_right=22, style=Style(label_font_size=11, title_font_size=11),
        logarithmic=True, show_legend=False, dots_size=3, js=(), no_prefix=True,
        x_labels=[{"value": size, "label": size_text(size)} for size in _some(sizes)],
        y_labels=[{"value": tick, "label": f"{tick:g}"} for tick in _ticks(min(rates), max(rates))],
        x_value_formatter=lambda x: size_text(round(x)), value_formatter=rate_text,
        y_title="busbw, GB/s", x_title="message size",
    )  # fmt: skip
    band = _band(expected)
    chart.add("expected", band, show_dots=False)
    for each in series:
        chart.add(each.name, list(each.points))
    root = ET.fromstring(chart.render())
    return _own(root, [each.name for each in series], name, title, summary)


def _band(expected: Sequence[Expected]) -> list[tuple[float, float]]:
    """Return the outline of the expected range: along its upper edge and back along the lower; the page fills it."""
    drawn = [each for each in expected if 0 < each.low_gb_s < 1e9 and 0 < each.high_gb_s < 1e9]
    upper = [(each.size_bytes, each.high_gb_s) for each in drawn]
    lower = [(each.size_bytes, each.low_gb_s) for each in drawn]
    return [*upper, *reversed(lower), *upper[:1]] if len(drawn) > 1 else []


def _some(sizes: Sequence[int]) -> list[int]:
    """Return the first and last size and some between, so that their names don't run into each other."""
    room = (math.log2(sizes[-1]) - math.log2(sizes[0])) / MOST_LABELS
    chosen = [sizes[-1]]
    for size in reversed(sizes[:-1]):
        if math.log2(chosen[-1]) - math.log2(size) >= room:
            chosen.append(size)
    return chosen[::-1]


def _ticks(low: float, high: float) -> list[float]:
    """Return powers of ten, and 2 and 5 times them where there are few."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    factors = (1, 2, 5) if last - first <= 2 else (1,)
    return [10.0**power * factor for power in range(first, last + 1) for factor in factors]


def _own(root: ET.Element, names: Sequence[str], name: str, title: str, summary: str) -> str:
    """Return pygal's SVG without its styles, scripts and tooltips, and with words for who can't see it."""
    plain = "{http://www.w3.org/2000/svg}"
    for parent in list(root.iter()):
        for child in list(parent):
            tag = child.tag.removeprefix(plain) if isinstance(child.tag, str) else ""
            is_tooltip = "tooltip-overlay" in child.get("class", "")
            if tag in ("defs", "title", "script", "style", "") or is_tooltip or _is_duplicate(tag, child):
                parent.remove(child)
        parent.attrib.pop("style", None)
        for key in POSITIONS & parent.attrib.keys():
            parent.set(key, LONG_NUMBER.sub(r"\1", parent.attrib[key]))
    for group in root.iter(f"{plain}g"):
        _name_dots(group, names, plain)
    root.attrib.update({"id": name, "role": "img", "aria-labelledby": f"{name}-title {name}-desc", "class": "chart"})
    for text, tag in ((summary, "desc"), (title, "title")):
        words = ET.Element(f"{plain}{tag}", {"id": f"{name}-{tag}"})
        words.text = text
        root.insert(0, words)
    ET.register_namespace("", plain.strip("{}"))
    return ET.tostring(root, encoding="unicode")


def _is_duplicate(tag: str, node: ET.Element) -> bool:
    return tag == "desc" and node.get("class") != "value"


def _name_dots(group: ET.Element, names: Sequence[str], plain: str) -> None:
    """Give each point the words that a pointer resting on it shows."""
    place = re.search(r"serie-(\d+)", group.get("class", ""))
    if place is None:
        return
    for dots in group.findall(f"{plain}g"):
        circle, words = dots.find(f"{plain}circle"), dots.find(f"{plain}desc")
        if circle is None or words is None:
            continue
        dots.remove(words)
        number = int(place[1]) - 1
        ET.SubElement(circle, f"{plain}title").text = f"{names[number]} · {words.text}" if number >= 0 else words.text
