"""The fleet as one page that needs nothing else; as readable for ten thousand nodes as for ten."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from preflight.model.fleet import Drift, Fleet, Group, Metric, NodeState, Odd, Unread
from preflight.model.hostlist import compress
from preflight.render.fleet import failing_hosts
from preflight.render.html import environment, styles
from preflight.render.reasons import line
from preflight.render.text import shorten

TEMPLATE = "fleet.html"
# What is cut is counted on the page, and is whole in --json and the host lists.
MOST_GROUPS, MOST_ODD, MOST_STATES, MOST_FILES, MOST_DRIFTS, MOST_VALUES = 20, 200, 200, 100, 30, 8
MOST_METRICS, MOST_CHARACTERS, MOST_REASON, MOST_FIGURES = 150, 4000, 300, 5
WIDTH, HEIGHT = 240, 36


@dataclass(frozen=True, slots=True)
class Rect:
    """A bar of a histogram."""

    x: float
    y: float
    width: float
    height: float
    tone: str  # "usual", or "odd" where it lies outside the bounds


@dataclass(frozen=True, slots=True)
class Strip:
    """How a figure is spread over a group, drawn, with its bounds."""

    name: str
    nodes: int
    median: str
    bounds: str
    lowest: str
    highest: str
    rects: tuple[Rect, ...]
    low_x: float
    high_x: float
    odd: int  # nodes outside the bounds


@dataclass(frozen=True, slots=True)
class OddNode:
    """A node that stands out, its worst figure first."""

    host: str
    figures: tuple[Odd, ...]
    more: int


@dataclass(frozen=True, slots=True)
class Shown:
    """A group, as much of it as the page has room for."""

    title: str
    hosts: str
    count: int
    told: str
    odd: tuple[OddNode, ...]
    odd_count: int
    strips: tuple[Strip, ...]
    strip_count: int
    drifts: tuple[tuple[str, tuple[tuple[int, str, str], ...], int], ...]
    drift_count: int


def render_fleet_html(fleet: Fleet) -> str:
    """Return the page; every text from outside is escaped, its size is bounded and what was cut is said."""
    odd = {each.host for group in fleet.groups for each in group.odd}
    failing = failing_hosts(fleet)
    return environment().get_template(TEMPLATE).render(
        **styles(),
        fleet=fleet,
        tone={0: "good", 1: "bad", 3: "unknown"}[fleet.exit_code],
        answer={0: "all alike", 1: "odd ones out", 3: "nothing read"}[fleet.exit_code],
        odd_count=len(odd),
        groups=[_group(group) for group in fleet.groups[:MOST_GROUPS]],
        more_groups=max(0, len(fleet.groups) - MOST_GROUPS),
        failing=_states(fleet.failing),
        unknown=_states(fleet.unknown),
        unread=_files(fleet.unread),
        replaced=_files(fleet.replaced),
        passing=_hosts(fleet.passing),
        to_look_at=_hosts(failing),
        to_look_at_count=len(failing),
        most=MOST_STATES,
        most_files=MOST_FILES,
        width=WIDTH,
        height=HEIGHT,
    )  # fmt: skip


def _group(group: Group) -> Shown:
    by_host: dict[str, list[Odd]] = {}
    for each in group.odd:
        by_host.setdefault(each.host, []).append(each)
    nodes = tuple(
        OddNode(line(host), tuple(figures[:MOST_FIGURES]), max(0, len(figures) - MOST_FIGURES))
        for host, figures in list(by_host.items())[:MOST_ODD]
    )
    counts = {metric.name: sum(each.what == metric.name for each in group.odd) for metric in group.metrics}
    strips = sorted(group.metrics, key=lambda metric: (-counts[metric.name], metric.name))
    return Shown(
        title=", ".join(f"{name} {line(value)}" if name != "GPUs" else line(value) for name, value in group.kind),
        hosts=_hosts(group.hosts),
        count=len(group.hosts),
        told=group.told,
        odd=nodes,
        odd_count=len(by_host),
        strips=tuple(_strip(metric, counts[metric.name]) for metric in strips[:MOST_METRICS]),
        strip_count=len(strips),
        drifts=tuple(_drift(each) for each in group.drift[:MOST_DRIFTS]),
        drift_count=len(group.drift),
    )


def _strip(metric: Metric, odd: int) -> Strip:
    """Draw a histogram whose bars grow with the root of the count: one odd node of ten thousand is to be seen."""
    span = metric.highest - metric.lowest
    step, most = WIDTH / max(1, len(metric.histogram)), max(metric.histogram, default=0)
    rects = []
    for place, count in enumerate(metric.histogram):
        if not count:
            continue
        low, high = (metric.lowest + span * (place + edge) / len(metric.histogram) for edge in (0, 1))
        usual = (low <= metric.high_bound and high >= metric.low_bound) or not odd
        tall = max(4.0, HEIGHT * (count / most) ** 0.5)
        rects.append(Rect(round(place * step, 1), round(HEIGHT - tall, 1), round(step - 1, 1), round(tall, 1),
                          "usual" if usual else "odd"))  # fmt: skip
    return Strip(
        line(metric.name), metric.nodes, _figure(metric.median), f"{_figure(max(metric.low_bound, 0.0))} to "
        f"{_figure(metric.high_bound)}", _figure(metric.lowest), _figure(metric.highest), tuple(rects),
        _place(metric, metric.low_bound), _place(metric, metric.high_bound), odd,
    )  # fmt: skip


def _place(metric: Metric, value: float) -> float:
    span = metric.highest - metric.lowest
    return round(WIDTH * min(1.0, max(0.0, (value - metric.lowest) / span)), 1) if span > 0 else WIDTH / 2


def _drift(drift: Drift) -> tuple[str, tuple[tuple[int, str, str], ...], int]:
    rows = tuple(
        (len(hosts), shorten(line(value), MOST_REASON), shorten(_hosts(hosts), MOST_REASON))
        for value, hosts in drift.values[:MOST_VALUES]
    )
    return line(drift.name), rows, max(0, len(drift.values) - MOST_VALUES)


def _states(states: Sequence[NodeState]) -> list[tuple[str, str]]:
    told = ((each, "; ".join(each.reasons) or each.verdict) for each in states[:MOST_STATES])
    return [(line(each.host), shorten(line(why), MOST_REASON)) for each, why in told]


def _files(files: Sequence[Unread]) -> list[tuple[str, str]]:
    return [(shorten(line(each.path), MOST_REASON), shorten(line(each.reason), MOST_REASON))
            for each in files[:MOST_FILES]]  # fmt: skip


def _hosts(hosts: Sequence[str]) -> str:
    return shorten(line(compress(hosts)), MOST_CHARACTERS) or "nobody"


def _figure(value: float) -> str:
    return f"{value:.3g}"
