"""The fleet as one self-contained HTML page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from preflight.model.fleet import Fleet, Group, Metric, NodeState, Odd, Unread
from preflight.model.placement import compress
from preflight.show.document import grouped
from preflight.show.fleet import (
    answer_of,
    caveats,
    check_counts,
    failing_hosts,
    odd_by_host,
    odd_hosts,
    reason_of,
    slowness_text,
    why_of,
)
from preflight.show.html_writer import html_page
from preflight.show.text import line, shorten

# What is cut is counted on the page, and is whole in --json and the host lists.
MOST_GROUPS, MOST_ODD, MOST_STATES, MOST_FILES, MOST_METRICS, MOST_DRIFTS = 20, 200, 200, 100, 150, 30
MOST_CHARACTERS, MOST_REASON = 4000, 300
WIDTH, HEIGHT = 240, 36


@dataclass(frozen=True, slots=True)
class Rect:
    """A bar of a histogram, with its position and size in the drawing."""

    x: float
    y: float
    width: float
    height: float
    tone: str  # "usual", or "odd" if the bar is outside the bounds


@dataclass(frozen=True, slots=True)
class Strip:
    """A histogram of one metric for a group of nodes, with the metric's thresholds."""

    metric: Metric
    rects: tuple[Rect, ...]
    low_x: float
    high_x: float
    odd: int  # nodes outside the bounds


@dataclass(frozen=True, slots=True)
class Shown:
    """A group of nodes with the same hardware, limited to the nodes and metrics that the page shows."""

    group: Group
    hosts: str
    odd: tuple[tuple[str, str, list[Odd]], ...]  # host, a text about many slow speeds, metrics
    odd_count: int
    odd_strips: tuple[Strip, ...]
    strips: tuple[Strip, ...]  # of metrics without outliers
    drifts: tuple[tuple[str, list[tuple[int, str, str]]], ...]


def render_fleet_html(fleet: Fleet) -> str:
    """Return the HTML page of the fleet.

    Text from outside is escaped. The page says which lists were cut.
    """
    failing = sorted(odd_hosts(fleet).union(failing_hosts(fleet)))
    return html_page(
        "fleet.html",
        fleet=fleet,
        tone={0: "good", 1: "bad", 3: "unknown"}[fleet.exit_code],
        answer=answer_of(fleet)[0],
        reason=reason_of(fleet),
        caveats=[*caveats(fleet), *([f"Checks of all nodes: {check_counts(fleet)}."] if fleet.checks else [])],
        odd_count=len(odd_hosts(fleet)),
        groups=[_group(group) for group in fleet.groups[:MOST_GROUPS]],
        more_groups=max(0, len(fleet.groups) - MOST_GROUPS),
        failing=_states(fleet.failing),
        would_drain=_states(fleet.would_drain),
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
    )


def _group(group: Group) -> Shown:
    odd = tuple((host, slowness_text(each, group.metrics), each) for host, each in odd_by_host(group).items())
    counts = {metric.name: sum(each.what == metric.name for each in group.odd) for metric in group.metrics}
    oddest = sorted(group.metrics, key=lambda metric: -counts[metric.name])  # else as in the reports: sizes in order
    drifts = tuple(
        (drift.name, [(len(hosts), _cut(value), _cut(_hosts(hosts))) for value, hosts in drift.values])
        for drift in group.drift[:MOST_DRIFTS]
    )
    strips = tuple(_strip(metric, counts[metric.name]) for metric in oddest[:MOST_METRICS])
    telling, flat = (tuple(each for each in strips if bool(each.odd) is is_odd) for is_odd in (True, False))
    return Shown(group, _hosts(group.hosts), odd[:MOST_ODD], len(odd), telling, flat, drifts)


def _strip(metric: Metric, odd: int) -> Strip:
    """Return the histogram of a metric.

    The bars' heights grow with the square root of the count, so that one outlier of ten thousand nodes stays visible.
    """
    span = metric.highest - metric.lowest
    step, most = WIDTH / max(1, len(metric.histogram)), max(metric.histogram, default=0)
    rects = []
    for place, count in enumerate(metric.histogram):
        if not count:
            continue
        low, high = (metric.lowest + span * (place + edge) / len(metric.histogram) for edge in (0, 1))
        tone = "usual" if (low <= metric.high_bound and high >= metric.low_bound) or not odd else "odd"
        tall = max(4.0, HEIGHT * (count / most) ** 0.5)
        rects.append(Rect(round(place * step, 1), round(HEIGHT - tall, 1), round(step - 1, 1), round(tall, 1), tone))
    low_x, high_x = (
        round(WIDTH * min(1.0, max(0.0, (bound - metric.lowest) / span)), 1) if span > 0 else WIDTH / 2
        for bound in (metric.low_bound, metric.high_bound)
    )
    return Strip(metric, tuple(rects), low_x, high_x, odd)


def _states(states: Sequence[NodeState]) -> list[tuple[str, str]]:
    """Group the nodes by the reason for their state. Return (nodes, reason) for each reason."""
    alike = grouped((_cut(why_of(each)), each.host) for each in states[:MOST_STATES])
    return [(_hosts(hosts), why) for why, hosts in alike.items()]


def _files(files: Sequence[Unread]) -> list[tuple[str, str]]:
    return [(_cut(each.path), _cut(each.reason)) for each in files[:MOST_FILES]]


def _cut(text: str) -> str:
    return shorten(line(text), MOST_REASON)


def _hosts(hosts: Sequence[str]) -> str:
    return shorten(line(compress(hosts)), MOST_CHARACTERS) or "nobody"
