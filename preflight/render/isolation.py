"""Who is at fault of several nodes: the rounds of small groups, in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from preflight.model.gap import Gap
from preflight.model.isolation import GroupSeen, GroupTrial, WayTrial
from preflight.model.report import Report
from preflight.render.text import INDENT, Style, clean, heading, pairs, ranges, wrap

MOST_SHOWN = 4
WORDS = {GroupSeen.OK: "worked", GroupSeen.SLOW: "slow", GroupSeen.DEAD: "failed", GroupSeen.UNTRIED: "not tried"}


def isolation_section(report: Report, style: Style) -> list[str]:
    """Return why groups of nodes were tried and what each round showed; nothing where none were."""
    seen = report.isolation
    if not seen.rounds:
        return []
    hosts = [clean(node.host) for node in report.nodes]
    lines = wrap(clean(f"Tried in groups: {seen.why} (settings: {seen.candidate})."), style.width, INDENT)
    items = [(f"round {i}", f"{done.why}: {_round(done.groups, hosts)}") for i, done in enumerate(seen.rounds, 1)]
    if seen.rank_by_rank:
        items.append(("by rank", _ranks(seen.rank_by_rank, hosts)))
    if seen.by_way:
        items.append(("by interface", _ways(seen.by_way, hosts)))
    lines += pairs([(name, clean(told)) for name, told in items], style.width)
    if not (seen.dead or seen.slow or seen.paths) and seen.told:
        lines += wrap(clean(f"Nobody is accused: {seen.told}."), style.width, INDENT)
    return [*heading("Which node is at fault", style), *lines]


def _round(groups: Sequence[GroupTrial], hosts: Sequence[str]) -> str:
    """Return how many worked, and by name those that did not."""
    bad = [each for each in groups if each.seen is not GroupSeen.OK]
    good = len(groups) - len(bad)
    named = [f"{_names(each, hosts)} {_how(each)}" for each in (bad if len(groups) > MOST_SHOWN else groups)]
    more = [f"{len(named) - MOST_SHOWN} more"] if len(named) > MOST_SHOWN else []
    counted = [f"{good} of {len(groups)} groups worked"] if len(groups) > MOST_SHOWN else []
    return ", ".join([*counted, *named[:MOST_SHOWN], *more])


def _names(group: GroupTrial, hosts: Sequence[str]) -> str:
    names = [_host(node, hosts) for node in group.nodes] or ["nobody"]
    return " + ".join(names) if len(names) <= MOST_SHOWN else f"{names[0]} + {len(names) - 1} more"


def _how(group: GroupTrial) -> str:
    speed = "" if isinstance(group.busbw_gb_s, Gap) else f" ({group.busbw_gb_s:.3g} GB/s)"
    return f"{WORDS[group.seen]}{speed}"


def _ranks(groups: Sequence[GroupTrial], hosts: Sequence[str]) -> str:
    told = []
    for nodes in dict.fromkeys(each.nodes for each in groups):
        own = [each for each in groups if each.nodes == nodes]
        by_how = Counter(WORDS[each.seen] for each in own)
        local = {how: ranges([each.local_rank for each in own if WORDS[each.seen] == how]) for how in by_how}
        shown = ", ".join(f"{numbers} {how}" for how, numbers in local.items())
        told.append(f"local ranks of {' with those of '.join(_host(node, hosts) for node in nodes)}: {shown}")
    return "; ".join(told)


def _ways(trials: Sequence[WayTrial], hosts: Sequence[str]) -> str:
    told = []
    for nodes in dict.fromkeys(each.trial.nodes for each in trials):
        shown = ", ".join(_way(each, hosts) for each in trials if each.trial.nodes == nodes)
        told.append(f"{' with '.join(_host(node, hosts) for node in nodes)}: {shown}")
    return "; ".join(told)


def _way(way: WayTrial, hosts: Sequence[str]) -> str:
    name = way.own if way.own == way.other else f"{way.own} to {way.other}"
    beside = ""
    if isinstance(way.beside, GroupTrial):
        beside = f" [{_names(way.beside, hosts)} {_how(way.beside)}]"
    return f"{name} {_how(way.trial)}{beside}"


def _host(node: int, hosts: Sequence[str]) -> str:
    return hosts[node] if 0 <= node < len(hosts) else f"node {node}"
