"""The section on the search for the faulty node."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from preflight.model.gap import Gap
from preflight.model.isolation import GroupOutcome, GroupTrial, RouteTrial
from preflight.model.report import Report
from preflight.show.document import Block, Heading, Items, grouped, note
from preflight.show.text import ranges

MOST_SHOWN = 4
WORDS = {
    GroupOutcome.OK: "worked",
    GroupOutcome.SLOW: "slow",
    GroupOutcome.DEAD: "failed",
    GroupOutcome.UNTRIED: "not tried",
}


def isolation_section(report: Report) -> list[Block]:
    """Return the section on the search for the faulty node, or [] if there was no search."""
    observed = report.isolation
    if not observed.rounds:
        return []
    hosts = [node.host for node in report.nodes]
    items = [(f"round {i}", f"{done.why}: {_round(done.groups, hosts)}") for i, done in enumerate(observed.rounds, 1)]
    if observed.rank_by_rank:
        items.append(("by rank", _ranks(observed.rank_by_rank, hosts)))
    if observed.by_route:
        items.append(("by interface", _routes(observed.by_route, hosts)))
    why = note(f"Tried in groups: {observed.why} (settings: {observed.candidate}).")
    blocks: list[Block] = [Heading("Which node is at fault"), why, Items(items)]
    if not (observed.dead or observed.slow or observed.paths) and observed.ended_because:
        blocks.append(note(f"No node is named, because {observed.ended_because}."))
    return blocks


def _round(groups: Sequence[GroupTrial], hosts: Sequence[str]) -> str:
    """Return how many groups of a round worked, and which groups failed.

    If there are only a few groups, the text lists how each group ended.
    """
    bad = [each for each in groups if each.observed is not GroupOutcome.OK]
    good = len(groups) - len(bad)
    named = [_how(each, hosts) for each in (bad if len(groups) > MOST_SHOWN else groups)]
    more = [f"{len(named) - MOST_SHOWN} more"] if len(named) > MOST_SHOWN else []
    counted = [f"{good} of {len(groups)} groups worked"] if len(groups) > MOST_SHOWN else []
    return ", ".join([*counted, *named[:MOST_SHOWN], *more])


def _how(group: GroupTrial, hosts: Sequence[str], subject: str = "") -> str:
    """Return how the trial of a group ended. If `subject` is set, `subject` replaces the names of the nodes."""
    names = [_host(node, hosts) for node in group.nodes] or ["nobody"]
    shown = " + ".join(names) if len(names) <= MOST_SHOWN else f"{names[0]} + {len(names) - 1} more"
    speed = "" if isinstance(group.busbw_gb_s, Gap) else f" ({group.busbw_gb_s:.3g} GB/s)"
    return f"{subject or shown} {WORDS[group.observed]}{speed}"


def _ranks(groups: Sequence[GroupTrial], hosts: Sequence[str]) -> str:
    parts = []
    for nodes in dict.fromkeys(each.nodes for each in groups):
        local: dict[str, list[int]] = {}
        for each in groups:
            if each.nodes == nodes:
                local.setdefault(WORDS[each.observed], []).append(each.local_rank)
        shown = ", ".join(f"{ranges(numbers)} {how}" for how, numbers in local.items())
        parts.append(f"local ranks of {' with those of '.join(_host(node, hosts) for node in nodes)}: {shown}")
    return "; ".join(parts)


def _routes(trials: Iterable[RouteTrial], hosts: Sequence[str]) -> str:
    by_nodes = grouped((" with ".join(_host(node, hosts) for node in e.trial.nodes), _route(e, hosts)) for e in trials)
    return "; ".join(f"{nodes}: {', '.join(routes)}" for nodes, routes in by_nodes.items())


def _route(route: RouteTrial, hosts: Sequence[str]) -> str:
    name = route.own if route.own == route.other else f"{route.own} to {route.other}"
    beside = f" [{_how(route.beside, hosts)}]" if isinstance(route.beside, GroupTrial) else ""
    return f"{_how(route.trial, hosts, name)}{beside}"


def _host(node: int, hosts: Sequence[str]) -> str:
    return hosts[node] if 0 <= node < len(hosts) else f"node {node}"
