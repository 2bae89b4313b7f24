"""The sections on the network paths between nodes, and on the differences between nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import median

from preflight.model.gap import Gap
from preflight.model.network_survey import NetifSet, NetworkSurvey, NodeOffers, PathEnd, PathResult
from preflight.model.report import Report
from preflight.model.storage import SharedStorage
from preflight.search.nodes.differences import differences
from preflight.search.nodes.interface_choice import WORDS
from preflight.show.document import BLANK, Block, Column, Heading, Items, Table, figures, note, section, table
from preflight.show.text import clean, fact_text, shorten

MOST_COLUMNS = 8  # of the matrix; beyond, a line per node says the same
MOST_FAILURES = 6


def between_sections(report: Report) -> list[Block]:
    """Return the sections on the routes, the storage and the differences of several nodes.

    The result is empty for one node.
    """
    blocks: list[Block] = []
    if not isinstance(report.between, Gap):
        blocks += _routes(report.between)
        if not isinstance(report.between.storage, Gap):
            blocks += _storage(report.between.storage)
    return blocks + _differences(report)


def _routes(between: NetworkSurvey) -> list[Block]:
    items = [(each.name, _set_words(each, each.name == between.chosen)) for each in between.sets]
    blocks: list[Block] = [Heading("Network paths")]
    blocks.append(Items(items) if items else note("no interface has a match on every node"))
    if between.chosen_set is not None:
        blocks += [BLANK, *_matrix(between, between.chosen_set)]
    failures = _failures(between)
    return blocks + ([BLANK, Items(failures)] if failures else [])


def _set_words(each: NetifSet, is_chosen: bool) -> str:
    names = "/".join(dict.fromkeys(netif for _, netif in each.netifs))
    if each.problem:
        return f"{names}: {each.problem}"
    speed = fact_text(each.gb_s, ", {:.2f} GB/s".format, gap="")
    trip = fact_text(each.rtt_us, ", {:.0f} µs there and back".format, gap="")
    return f"{names} reaches every node{speed}{trip}" + ("; the fastest" if is_chosen else "")


def _matrix(between: NetworkSurvey, chosen: NetifSet) -> list[Table]:
    """Return tables with the speed in GB/s between the nodes, one row per node.

    If no speed was measured, a cell has `ok`. If there are many nodes, a row has only the slowest and the median speed
    of its node.
    """
    netifs = dict(chosen.netifs)
    within = {
        (result.from_node, result.to_node): result
        for result in between.results
        if netifs.get(result.from_node) == result.netif and netifs.get(result.to_node) == result.to_netif
    }
    if not within:
        return []
    nodes = between.nodes
    if len(nodes) > MOST_COLUMNS:
        return [_by_node(nodes, within)]
    headers = [Column("GB/s", limit=16), *figures(*(shorten(clean(node.host), 10) for node in nodes))]
    return [
        table(
            headers,
            [[here.host, *(_cell(within.get((here.node_rank, there.node_rank))) for there in nodes)] for here in nodes],
        )
    ]


def _cell(result: PathResult | None) -> str:
    return "-" if result is None else fact_text(result.gb_s, "{:.2f}".format, gap="ok")


def _by_node(nodes: Sequence[NodeOffers], within: dict[tuple[int, int], PathResult]) -> Table:
    rows = []
    for node in nodes:
        own = [result for (here, _), result in within.items() if here == node.node_rank]
        rates = [result.gb_s for result in own if not isinstance(result.gb_s, Gap)]
        if rates:
            rows.append([node.host, str(len(own)), f"{min(rates):.2f}", f"{median(rates):.2f}"])
    return table((Column("node", limit=24), *figures("tried", "slowest GB/s", "median GB/s")), rows)


def _failures(between: NetworkSurvey) -> list[tuple[str, str]]:
    """Return the failed attempts to connect. Attempts with the same interface name and result share a line."""
    alike: dict[tuple[str, PathEnd], list[PathResult]] = {}
    for result in between.results:
        if result.end is not PathEnd.OK:
            alike.setdefault((result.netif, result.end), []).append(result)
    items = []
    for (netif, end), results in list(alike.items())[:MOST_FAILURES]:
        where = f"{between.host_of(results[0].from_node)} to {between.host_of(results[0].to_node)}"
        more = f" and {len(results) - 1} more" if len(results) > 1 else ""
        items.append((netif, f"{WORDS[end]}: {where}{more}"))
    return items


def _storage(storage: SharedStorage) -> list[Block]:
    rows = [
        [node.host, _rate(node.write_gb_s), _rate(node.read_gb_s), _delay(node.appeared_after_s)]
        for node in storage.nodes
    ]
    rows.append(["together", _rate(storage.write_together_gb_s), _rate(storage.read_together_gb_s), ""])
    headers = (Column("node", limit=24), *figures("writes GB/s", "reads GB/s", "seen after"))
    return section(f"Storage {storage.directory}, {storage.file_bytes >> 20} MiB a node", table(headers, rows))


def _rate(value: float | Gap) -> str:
    return fact_text(value, "{:.2f}".format)


def _delay(after_s: float) -> str:
    return "at once" if after_s < 0.05 else f"{after_s:.1f} s"


def _differences(report: Report) -> list[Block]:
    clocks = () if isinstance(report.between, Gap) else report.between.clocks
    rows = []
    for each in differences(report.nodes, clocks, report.backend):
        for i, (value, hosts) in enumerate(each.values[:4]):
            more = f" and {len(hosts) - 2} more" if len(hosts) > 2 else ""
            what, must = ("", "") if i else (each.what, each.must.value)
            rows.append([what, value, f"{', '.join(hosts[:2])}{more}", must])
    listed = table(("", Column("", limit=40), "", ""), rows)
    return section("What differs between the nodes", replace(listed, has_headers=False))
