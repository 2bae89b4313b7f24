"""The overview of many reports as a page for the terminal, and as the lists that schedulers take."""

from __future__ import annotations

from collections.abc import Sequence

from preflight.model.fleet import Drift, Fleet, Group, NodeState, Odd, Unread
from preflight.model.hostlist import compress
from preflight.render.text import Style, clean, finish, heading, paint, shorten, table, wrap

MOST_LINES = 20
INDENT = "  "


def render_fleet(fleet: Fleet, style: Style) -> str:
    """Return the page that `preflight fleet` prints."""
    odd = sorted({each.host for group in fleet.groups for each in group.odd})
    colour = {0: "green", 1: "red", 3: "yellow"}[fleet.exit_code]
    title = {0: "ALL ALIKE", 1: "ODD ONES OUT", 3: "NOTHING READ"}[fleet.exit_code]
    told = (
        f"{fleet.nodes} nodes in {fleet.reports} reports: {len(fleet.passing)} pass, {len(fleet.failing)} fail, "
        f"{len(odd)} stand out of their group, {len(fleet.unknown)} unknown; {len(fleet.unread)} files were no report"
    )
    lines = [paint(title, colour, style), *wrap(told, style.width)]
    if fleet.is_simulated:
        lines += wrap("SIMULATED: at least one report is of a simulated run.", style.width)
    lines += _states("Failing", fleet.failing, style) + _states("Unknown", fleet.unknown, style)
    for group in fleet.groups:
        lines += _group(group, style)
    lines += _unread("No report", fleet.unread, style) + _unread("Replaced by a newer one", fleet.replaced, style)
    return finish(lines, style)


def render_host_list(hosts: Sequence[str]) -> str:
    """Return a comment with the hosts in hostlist syntax, then one host a line."""
    names = sorted(set(hosts))
    return "\n".join([f"# {clean(compress(names)) or 'nobody'}", *map(clean, names)]) + "\n"


def failing_hosts(fleet: Fleet) -> tuple[str, ...]:
    """Return who should not get a job before somebody has looked: failing nodes and odd ones."""
    odd = {each.host for group in fleet.groups for each in group.odd}
    return tuple(sorted(odd | {state.host for state in fleet.failing}))


def _states(title: str, states: Sequence[NodeState], style: Style) -> list[str]:
    if not states:
        return []
    lines = heading(f"{title} ({len(states)})", style)
    for state in states[:MOST_LINES]:
        reasons = "; ".join(state.reasons) or state.verdict
        lines += wrap(clean(f"{state.host}: {reasons}"), style.width, INDENT, INDENT * 2)
    return lines + _more(len(states), style)


def _group(group: Group, style: Style) -> list[str]:
    kind = ", ".join(f"{name} {value}" for name, value in group.kind)
    lines = heading(f"{len(group.hosts)} nodes: {shorten(clean(kind), max(20, style.width - 20))}", style)
    lines += wrap(clean(compress(group.hosts)), style.width, INDENT, INDENT)[:3]
    if group.told:
        lines += wrap(group.told, style.width, INDENT, INDENT)
    by_host: dict[str, list[Odd]] = {}
    for each in group.odd:
        by_host.setdefault(each.host, []).append(each)
    for odd in list(by_host.values())[:MOST_LINES]:
        lines += _odd(odd, style)
    lines += _more(len(by_host), style)
    if not group.odd and not group.told:
        lines += wrap(f"nobody stands out in {len(group.metrics)} figures", style.width, INDENT, INDENT)
    for drift in group.drift:
        lines += _drift(drift, style)
    return lines


def _odd(odd: Sequence[Odd], style: Style) -> list[str]:
    """Say by what a node stands out most, and by how much else."""
    worst = odd[0]
    others = f"; and in {len(odd) - 1} more figures" if len(odd) > 2 else ""
    others = f"; also {odd[1].what}: {odd[1].value}, not {odd[1].usual}" if len(odd) == 2 else others
    told = f"{worst.host}: {worst.what} is {worst.value}, elsewhere {worst.usual}{others}"
    return wrap(clean(told), style.width, INDENT, INDENT * 2)


def _drift(drift: Drift, style: Style) -> list[str]:
    lines = wrap(f"differs: {clean(drift.name)}", style.width, INDENT, INDENT)
    rows = [
        [str(len(hosts)), shorten(clean(value), style.width // 2), shorten(clean(compress(hosts)), style.width // 3)]
        for value, hosts in drift.values[:5]
    ]
    return lines + [INDENT + line for line in table(["nodes", "value", "which"], rows, style.width - 2, right=[0])]


def _unread(title: str, files: Sequence[Unread], style: Style) -> list[str]:
    if not files:
        return []
    lines = heading(f"{title} ({len(files)})", style)
    for file in files[:MOST_LINES]:
        lines += wrap(clean(f"{file.path}: {file.reason}"), style.width, INDENT, INDENT * 2)
    return lines + _more(len(files), style)


def _more(count: int, style: Style) -> list[str]:
    if count <= MOST_LINES:
        return []
    return wrap(f"... and {count - MOST_LINES} more; all of them are in --json", style.width, INDENT, INDENT)
