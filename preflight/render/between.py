"""What several nodes learnt of the ways between them, and in what they differ, as a person reads it."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from preflight.model.between import Between, NetifSet, NodeOffers, PathEnd, PathResult, SharedStorage
from preflight.model.gap import Gap
from preflight.model.report import Report
from preflight.plan.differences import differences
from preflight.plan.interface_choice import WORDS
from preflight.render.text import Style, clean, heading, pairs, shorten, table

MOST_COLUMNS = 8  # of the matrix; beyond, a line per node says the same
MOST_FAILURES = 6


def between_sections(report: Report, style: Style) -> list[str]:
    """Return the sections on the ways between the nodes, their storage and their differences; none on one node."""
    lines: list[str] = []
    if not isinstance(report.between, Gap):
        lines += _ways(report.between, style)
        if not isinstance(report.between.storage, Gap):
            lines += _storage(report.between.storage, style)
    return lines + _differences(report, style)


def _ways(between: Between, style: Style) -> list[str]:
    lines = heading("Ways between the nodes", style)
    items = [(clean(each.name), _set_words(each, each.name == between.chosen)) for each in between.sets]
    lines += pairs(items, style.width) if items else ["  no interface has a match on every node"]
    chosen = between.chosen_set
    if chosen is not None:
        lines += ["", *_matrix(between, chosen, style)]
    failures = _failures(between)
    if failures:
        lines += ["", *pairs(failures, style.width)]
    return lines


def _set_words(each: NetifSet, is_chosen: bool) -> str:
    names = "/".join(dict.fromkeys(clean(netif) for _, netif in each.netifs))
    if each.problem:
        return f"{names}: {clean(each.problem)}"
    speed = "" if isinstance(each.gb_s, Gap) else f", {each.gb_s:.2f} GB/s"
    trip = "" if isinstance(each.rtt_us, Gap) else f", {each.rtt_us:.0f} µs there and back"
    return f"{names} reaches every node{speed}{trip}" + ("; the fastest" if is_chosen else "")


def _matrix(between: Between, chosen: NetifSet, style: Style) -> list[str]:
    """Return a row per node with GB/s (or the round trip) to every other, of many nodes the slowest and the median."""
    netifs = dict(chosen.netifs)
    within = {
        (result.from_node, result.to_node): result
        for result in between.results
        if netifs.get(result.from_node) == result.netif and netifs.get(result.to_node) == result.to_netif
    }
    if not within:
        return []
    if len(between.nodes) > MOST_COLUMNS:
        return _by_node(between.nodes, within, style)
    headers = ["GB/s", *[shorten(clean(node.host), 10) for node in between.nodes]]
    rows = [
        [
            shorten(clean(here.host), 16),
            *[_cell(within.get((here.node_rank, there.node_rank))) for there in between.nodes],
        ]
        for here in between.nodes
    ]
    return table(headers, rows, style.width, right=tuple(range(1, len(headers))))


def _cell(result: PathResult | None) -> str:
    if result is None:
        return "-"
    return "ok" if isinstance(result.gb_s, Gap) else f"{result.gb_s:.2f}"


def _by_node(nodes: Sequence[NodeOffers], within: dict[tuple[int, int], PathResult], style: Style) -> list[str]:
    rows = []
    for node in nodes:
        own = [result for (here, _), result in within.items() if here == node.node_rank]
        rates = [result.gb_s for result in own if not isinstance(result.gb_s, Gap)]
        if rates:
            rows.append([shorten(clean(node.host), 24), str(len(own)), f"{min(rates):.2f}", f"{median(rates):.2f}"])
    return table(("node", "tried", "slowest GB/s", "median GB/s"), rows, style.width, right=(1, 2, 3))


def _failures(between: Between) -> list[tuple[str, str]]:
    """Return what fails elsewhere, one line for all attempts that fail alike from the same interface name."""
    alike: dict[tuple[str, PathEnd], list[PathResult]] = {}
    for result in between.results:
        if result.end is not PathEnd.OK:
            alike.setdefault((result.netif, result.end), []).append(result)
    items = []
    for (netif, end), results in list(alike.items())[:MOST_FAILURES]:
        first = results[0]
        where = f"{between.host_of(first.from_node)} to {between.host_of(first.to_node)}"
        more = f" and {len(results) - 1} more" if len(results) > 1 else ""
        items.append((clean(netif), clean(f"{WORDS[end]}: {where}{more}")))
    return items


def _storage(storage: SharedStorage, style: Style) -> list[str]:
    rows = [
        [shorten(clean(node.host), 24), _rate(node.write_gb_s), _rate(node.read_gb_s), _seen(node.appeared_after_s)]
        for node in storage.nodes
    ]
    rows.append(["together", _rate(storage.write_together_gb_s), _rate(storage.read_together_gb_s), ""])
    title = f"Storage {clean(storage.directory)}, {storage.file_bytes >> 20} MiB a node"
    return [
        *heading(title, style),
        *table(("node", "writes GB/s", "reads GB/s", "seen after"), rows, style.width, (1, 2, 3)),
    ]


def _rate(value: float | Gap) -> str:
    return "?" if isinstance(value, Gap) else f"{value:.2f}"


def _seen(after_s: float) -> str:
    return "at once" if after_s < 0.05 else f"{after_s:.1f} s"


def _differences(report: Report, style: Style) -> list[str]:
    clocks = () if isinstance(report.between, Gap) else report.between.clocks
    rows = []
    for each in differences(report.nodes, clocks, report.backend):
        for i, (value, hosts) in enumerate(each.values[:4]):
            more = f" and {len(hosts) - 2} more" if len(hosts) > 2 else ""
            named = f"{', '.join(map(clean, hosts[:2]))}{more}"
            rows.append(
                [each.what if not i else "", shorten(clean(value), 40), named, each.must.value if not i else ""]
            )
    return (
        [*heading("What differs between the nodes", style), *table(("", "", "", ""), rows, style.width)[1:]]
        if rows
        else []
    )
