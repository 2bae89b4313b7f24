"""The first screen of `preflight fleet`: the answer, which nodes it is about and why, what to do next."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from preflight.model.fleet import Drift, Fleet, Group
from preflight.model.placement import compress
from preflight.show.console_writer import finish
from preflight.show.document import Block, Text, answer_line, grouped
from preflight.show.fleet import (
    answer_of,
    caveats,
    check_counts,
    counted,
    counts_of,
    odd_by_host,
    odd_hosts,
    odd_text,
    reason_of,
    why_of,
)
from preflight.show.screen import ALL, fitted, foot_of
from preflight.show.settings import quoted_path
from preflight.show.text import Style, line

LISTS = "--out DIR writes the lists of hosts"
MOST_VALUES = 3


def render_fleet_screen(fleet: Fleet, style: Style, out: str = "", written: Sequence[str] = ()) -> str:
    """Return what fits on one screen: who failed, who is odd, who is unknown, what differs; `out` has the lists."""
    word, tone = answer_of(fleet)
    head: list[Block] = [answer_line(word.upper(), tone, reason_of(fleet))]
    head += [Text(each, 2, 4, most_lines=2) for each in caveats(fleet)]
    groups: list[list[Block]] = [
        *_alike("FAIL", "red", ((why_of(each), each.host) for each in (*fleet.failing, *fleet.would_drain))),
        *_alike("ODD", "yellow", _odd(fleet.groups)),
        *_alike("UNKNOWN", "yellow", ((why_of(each), each.host) for each in fleet.unknown)),
        *([_drift(each)] for group in fleet.groups for each in _unnamed(group)),
        *_alike("NO REPORT", "yellow", ((each.reason, each.path) for each in fleet.unread), _files),
        *([_group(each)] for each in fleet.groups),
    ]
    files = ", ".join(written) or f"nothing; {LISTS}"
    rows = [("Next", _next(fleet, out)), ("Nodes", f"{counts_of(fleet)} ({ALL})")]
    rows += [*([("Checks", check_counts(fleet))] if fleet.checks else []), ("Written", files)]
    return fitted(head, groups, foot_of(rows), style)


def render_fleet_verdict(fleet: Fleet, style: Style) -> str:
    """Return the answer on one line, for `-q`."""
    return finish([f"{answer_of(fleet)[0].upper()}  {line(reason_of(fleet))}"], style)


def _hosts(hosts: Sequence[str]) -> str:
    return f"{compress(hosts)} ({len(hosts)})" if len(hosts) > 1 else hosts[0]


def _files(paths: Sequence[str]) -> str:
    return counted(len(paths), "file") if len(paths) > 1 else paths[0]


def _alike(
    word: str, tone: str, entries: Iterable[tuple[str, str]], named: Callable[[Sequence[str]], str] = _hosts
) -> list[list[Block]]:
    """Return a line for each reason, with all who share it."""
    label = f"{word:<4}  "
    said = [f"{named(names)}: {reason}" for reason, names in grouped(entries).items()]
    return [[Text(each, 0, 6, label=label, label_tone=tone, most_lines=3)] for each in said]


def _odd(groups: Iterable[Group]) -> Iterable[tuple[str, str]]:
    for group in groups:
        for host, odd in odd_by_host(group).items():
            yield odd_text(odd).removeprefix(f"{host}: "), host


def _unnamed(group: Group) -> list[Drift]:
    """Return the settings that differ and that no odd node is named for."""
    named = {odd.what for odd in group.odd}
    return [each for each in group.drift if each.name not in named]


def _drift(drift: Drift) -> Block:
    values = [f"{value} on {len(hosts)} ({compress(hosts)})" for value, hosts in drift.values[:MOST_VALUES]]
    return Text(f"{drift.name}: {'; '.join(values)}", 0, 6, label="DIFFERS  ", label_tone="dim", most_lines=2)


def _group(group: Group) -> Block:
    kind = ", ".join(f"{name} {value}" for name, value in group.kind)
    said = group.problem or f"{counted(len(group.metrics), 'figure')} compared"
    text = f"{counted(len(group.hosts), 'node')} with {kind}: {said}"
    return Text(text, 0, 6, label="GROUP  ", label_tone="dim", most_lines=2)


def _next(fleet: Fleet, out: str) -> str:
    """Return what to do next, with the list to do it with."""

    def those(name: str, else_: str) -> str:
        return quoted_path(f"{out.rstrip('/')}/{name}") if out else else_

    if not fleet.nodes:
        return "give reports of `preflight check`, or folders that hold them as *.json"
    if fleet.failing:
        more = "; compare the odd ones before you drain any" if odd_hosts(fleet) else ""
        more += "; check the unknown ones again" if fleet.unknown else ""
        return f"drain {those('failing_nodes.txt', 'what failed')} and repair what its reasons name{more}"
    if fleet.would_drain:
        return f"look at {those('would_drain_nodes.txt', 'what would be drained')}: without --shadow it would be"
    if odd_hosts(fleet):
        return f"compare {those('odd_nodes.txt', 'the odd nodes')} with their neighbours before you drain any"
    if fleet.unknown:
        return f"run `preflight check` again on {those('unknown_nodes.txt', 'the unknown nodes')}"
    return "nothing to do; `preflight baseline` learns from these reports what such nodes reach"
