"""SVG plots of the bus bandwidth for large messages and of the time for small messages.

pygal draws the plots, and this module adds the text.
"""

from __future__ import annotations

import math
import re
import sys
import xml.etree.ElementTree as ET
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from preflight.model.collective import Collective
from preflight.model.facts import Gap
from preflight.model.links import Expected
from preflight.model.report import Report
from preflight.model.trial import CollectiveResult, TrialResult
from preflight.model.units import rate_text, size_text, time_text
from preflight.show.text import line

# Narrow, so that a phone need not shrink it much; the page gives the letters their size.
WIDTH, HEIGHT = 480, 270
MOST_LABELS = 5
MOST_TICKS = 6
LONG_NUMBER = re.compile(r"(\d+\.\d)\d+")
POSITIONS = frozenset({"d", "x", "y", "cx", "cy", "transform"})


LARGE_BYTES = 1 << 20  # from here on bandwidth decides; below it latency does, and a plot of its own shows it
LEAST_FOR_A_LINE = 3  # two points make any line


class Axis(Enum):
    """The quantity on a plot's vertical axis."""

    BUSBW = "busbw, GB/s"
    TIME = "time, µs"


SHOWN: dict[Axis, Callable[[float], str]] = {
    Axis.BUSBW: lambda rate: f"{rate_text(rate)}",
    Axis.TIME: time_text,
}


@dataclass(frozen=True, slots=True)
class Series:
    """The plotted values of one configuration, as pairs (message size in bytes, value)."""

    name: str
    points: tuple[tuple[int, float], ...]
    wrong: bool  # the data of at least one size was wrong


@dataclass(frozen=True, slots=True)
class Chart:
    """The SVG plot of one collective, with the plotted values as numbers."""

    title: str
    unit: str
    svg: str
    series: tuple[Series, ...]
    sizes: tuple[int, ...]
    expected: tuple[Expected, ...]
    summary: str


def charts(report: Report) -> tuple[Chart, ...]:
    """Return the plots of bus bandwidth and time for each collective that has values."""
    made = [
        _chart(report, collective, measure, f"chart-{measure.name.lower()}-{number}")
        for measure in Axis
        for number, collective in enumerate(Collective)
    ]
    return tuple(chart for chart in made if chart is not None)


def _chart(report: Report, collective: Collective, measure: Axis, name: str) -> Chart | None:
    """Return a plot of a collective, or None if the collective was measured at fewer than two sizes."""
    series = tuple(each for trial in report.trials if (each := _series(trial, collective, measure)).points)
    sizes = tuple(sorted({size for each in series for size, _ in each.points}))
    if len(sizes) < 2:
        return None
    listed = () if isinstance(report.expected, Gap) or measure is Axis.TIME else report.expected
    expected = tuple(sorted((e for e in listed if e.what == collective.value and e.size_bytes in sizes),
                            key=lambda each: each.size_bytes))  # fmt: skip
    summary = _summary(series, expected, measure)
    what = measure.value.partition(",")[0]
    title = f"{what} of {collective.value} over message size"
    svg = _svg(series, sizes, expected, measure, name, title, summary)
    below = "" if measure is Axis.BUSBW else " below 1 MiB"
    return Chart(f"{collective.value}: {what}{below}", measure.value, svg, series, sizes, expected, summary)


def _series(trial: TrialResult, collective: Collective, measure: Axis) -> Series:
    same = [each for each in trial.results if each.collective is collective]
    values = [(each.size_bytes, _value(each, measure)) for each in same]
    known = {size: value for size, value in values if not isinstance(value, Gap) and _can_be_drawn(size, value)}
    return Series(line(trial.candidate), tuple(sorted(known.items())), not all(each.verified for each in same))


def _value(result: CollectiveResult, measure: Axis) -> float | Gap:
    is_large = result.size_bytes >= LARGE_BYTES
    if is_large is not (measure is Axis.BUSBW):
        return Gap("it stands in the other plot")
    return result.busbw_gb_s if is_large else result.median_us


def _can_be_drawn(size_bytes: int, value: float) -> bool:
    """Return whether a value can be drawn.

    The busbw of a single rank is 0 and can't be drawn.
    """
    return 1e-9 < value < 1e9 and 0 < size_bytes < 1 << 60


def _summary(series: Sequence[Series], expected: Sequence[Expected], measure: Axis) -> str:
    parts = []
    for each in series:
        size, value = each.points[-1 if measure is Axis.BUSBW else 0]
        verb = "reaches" if measure is Axis.BUSBW else "takes"
        parts.append(f"{each.name} {verb} {SHOWN[measure](value)} at {size_text(size)}")
    if expected:
        last = expected[-1]
        low, high = rate_text(last.low_gb_s), rate_text(last.high_gb_s)
        parts.append(f"the range expected from the links is {low} to {high} at {size_text(last.size_bytes)}")
    return "; ".join(parts) + "."


def _pygal() -> tuple[Any, Any]:
    """Return pygal and its Style class.

    The package is loaded only for pages with a chart, because loading takes a tenth of a second. pygal leaves a finder
    in sys.meta_path that only Python 2 could use. This function removes the finder, because every later import would
    warn about the finder.
    """
    before = list(sys.meta_path)
    import pygal  # noqa: PLC0415  only for a page with a chart
    from pygal.style import Style  # noqa: PLC0415  with pygal

    sys.meta_path[:] = [finder for finder in sys.meta_path if finder in before or hasattr(finder, "find_spec")]
    return pygal, Style


def _svg(
    series: Sequence[Series], sizes: Sequence[int], expected: Sequence[Expected], measure: Axis, name: str,
    title: str, summary: str,
) -> str:  # fmt: skip
    """Return the plot as SVG. The axis of message sizes is logarithmic; the axis of values is linear from 0."""
    pygal, Style = _pygal()  # noqa: N806

    values = [value for each in series for _, value in each.points] + [e.high_gb_s for e in expected]
    ticks = _ticks(max(values))
    chart = pygal.XY(
        width=WIDTH, height=HEIGHT, margin=4, margin_right=22, style=Style(label_font_size=11, title_font_size=11),
        range=(0, ticks[-1]), show_legend=False, dots_size=3, js=(), no_prefix=True,
        x_labels=[{"value": math.log2(size), "label": size_text(size)} for size in _some(sizes)],
        y_labels=[{"value": tick, "label": f"{tick:g}"} for tick in ticks],
        x_value_formatter=lambda x: size_text(round(2**x)), value_formatter=SHOWN[measure],
        y_title=measure.value, x_title="message size",
    )  # fmt: skip
    chart.add("expected", _band(expected), show_dots=False)
    for each in series:
        points = [(math.log2(size), value) for size, value in each.points]
        chart.add(each.name, points, stroke=len(points) >= LEAST_FOR_A_LINE)
    root = ET.fromstring(chart.render())
    return _own(root, [each.name for each in series], name, title, summary)


def _band(expected: Sequence[Expected]) -> list[tuple[float, float]]:
    """Return the outline of the expected range as a polygon: first its upper edge, then its lower edge backward."""
    drawn = [
        (math.log2(each.size_bytes), each) for each in expected if 0 < each.low_gb_s < 1e9 and 0 < each.high_gb_s < 1e9
    ]
    upper = [(place, each.high_gb_s) for place, each in drawn]
    lower = [(place, each.low_gb_s) for place, each in drawn]
    return [*upper, *reversed(lower), *upper[:1]] if len(drawn) > 1 else []


def _some(sizes: Sequence[int]) -> list[int]:
    """Return the message sizes that get a label: the last size, and sizes whose labels do not overlap."""
    room = (math.log2(sizes[-1]) - math.log2(sizes[0])) / MOST_LABELS
    chosen = [sizes[-1]]
    for size in reversed(sizes[:-1]):
        if math.log2(chosen[-1]) - math.log2(size) >= room:
            chosen.append(size)
    return chosen[::-1]


def _ticks(largest: float) -> list[float]:
    """Return 0 and four to ten round steps, the last step at or above the largest value."""
    power = 10.0 ** math.floor(math.log10(largest))
    step = next(power * factor for factor in (0.2, 0.5, 1.0, 2.0) if largest / (power * factor) <= MOST_TICKS)
    return [float(f"{i * step:.6g}") for i in range(math.ceil(largest / step) + 1)]


def _own(root: ET.Element, names: Sequence[str], name: str, title: str, summary: str) -> str:
    """Return pygal's SVG without styles, scripts and tooltips.

    The function adds texts for screen readers.
    """
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
    """Give each point of a plot a tooltip."""
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
