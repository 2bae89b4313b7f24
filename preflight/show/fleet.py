"""The overview of many reports: a page for the terminal, and host lists for schedulers."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from preflight.model.finding import CheckOutcome
from preflight.model.fleet import Drift, Fleet, Group, Metric, NodeState, Odd, Unread
from preflight.model.placement import compress
from preflight.model.units import counted
from preflight.show.checks_and_findings import outcome_word
from preflight.show.document import Block, Column, Heading, Table, Text, answer_line, grouped, item, note, right, table
from preflight.show.screen import ALL, Page
from preflight.show.settings import quoted_path
from preflight.show.text import clean, line, shorten

MOST_BLIND = 5
MANY = 3  # slow speeds of a node: one reason
MOST_LINES, MOST_HOST_LINES, MOST_NAMED = 20, 3, 200
WOULD_DRAIN = "Would have been drained (--shadow)"
ANSWERS = {0: ("all alike", "green"), 1: ("outliers", "red"), 3: ("unknown", "yellow")}
FAIL = ("nodes fail", "red")
SMALL = (" B busbw GB/s", " KiB busbw GB/s")  # how the names of latency end
NOTHING_READ = ("nothing read", "yellow")
DRIFT_HEADERS = (
    right("nodes"), Column("value", limit=lambda width: width // 2), Column("which", limit=lambda width: width // 3),
)  # fmt: skip
LISTS = "--out DIR writes the lists of hosts"
MOST_VALUES = 3
COMPARE = "`preflight diff GOOD.json OUTLIER.json`"


def fleet_page(fleet: Fleet, out: str = "", written: Sequence[str] = ()) -> Page:
    """Return the page of `preflight fleet`.

    `out` is the folder with the host lists.
    """
    word, tone = answer_of(fleet)
    answer = answer_line(word.upper(), tone, reason_of(fleet))
    groups: list[list[Block]] = [
        *_alike("FAIL", "red", ((why_of(each), each.host) for each in (*fleet.failing, *fleet.would_drain))),
        *_alike("OUTLIER", "yellow", _odd(fleet.groups)),
        *_alike("UNKNOWN", "yellow", ((why_of(each), each.host) for each in fleet.unknown)),
        *([_short_drift(each)] for group in fleet.groups for each in _unnamed(group)),
        *_alike("NO REPORT", "yellow", ((each.reason, each.path) for each in fleet.unread), _files),
        *([_short_group(each)] for each in fleet.groups),
    ]
    checks = [("Checks", check_counts(fleet))] if fleet.checks else []
    files = ("Written", ", ".join(written) or f"nothing; {LISTS}")
    return Page(
        answer,
        [answer, *(Text(each, 2, 4, most_lines=2) for each in caveats(fleet))],
        groups,
        [("Next", _next(fleet, out)), ("Nodes", f"{counts_of(fleet)} ({ALL})"), *checks, files],
        lambda: [answer, *_whole(fleet)],
    )


def _whole(fleet: Fleet) -> list[Block]:
    blocks: list[Block] = [Text(f"{counts_of(fleet)}.", hang=2)]
    blocks += [Text(each, hang=2) for each in caveats(fleet)]
    if checks := check_counts(fleet):
        blocks.append(Text(f"Checks of all nodes: {checks}.", hang=2))
    blocks += [*_states("Failing", fleet.failing), *_states(WOULD_DRAIN, fleet.would_drain)]
    blocks += _states("Unknown", fleet.unknown)
    for group in fleet.groups:
        blocks += _group(group)
    return [*blocks, *left_out("No report", fleet.unread), *left_out("Replaced by a newer one", fleet.replaced)]


def answer_of(fleet: Fleet) -> tuple[str, str]:
    """Return the verdict on the fleet and the color of the verdict."""
    if not fleet.nodes:
        return NOTHING_READ
    return FAIL if fleet.failing or fleet.would_drain else ANSWERS[fleet.exit_code]


def reason_of(fleet: Fleet) -> str:
    """Return one sentence that justifies the verdict on the fleet."""
    if not fleet.nodes:
        return f"none of {counted(len(fleet.unread), 'file')} is a report that `preflight check` wrote"
    odd, bad = len(odd_hosts(fleet)), len(fleet.failing) + len(fleet.would_drain)
    found = [f"{bad} of {counted(fleet.nodes, 'node')} failed the check"] if bad else []
    found += (
        [f"{odd} of {fleet.nodes} {'differs' if odd == 1 else 'differ'} from nodes of the same hardware"] if odd else []
    )
    if not found and fleet.unknown:
        found = [f"{len(fleet.unknown)} of {counted(fleet.nodes, 'node')} could not be judged"]
    if not found and any(group.problem for group in fleet.groups):
        found = [f"{counted(fleet.nodes, 'node')}, all ready; too few nodes of one kind to compare"]
    return "; ".join(found) or f"{counted(fleet.nodes, 'node')}, all ready, no outliers"


def counts_of(fleet: Fleet) -> str:
    """Return a text with the number of nodes in each state and the number of reports."""
    counts = [
        f"{len(fleet.passing)} passed", f"{len(fleet.failing)} failed", counted(len(odd_hosts(fleet)), "outlier"),
        f"{len(fleet.unknown)} unknown",
    ]  # fmt: skip
    files = f"; {counted(len(fleet.unread), 'file')} without a report" if fleet.unread else ""
    return f"{', '.join(counts)}, from {counted(fleet.reports, 'report')}{files}"


def check_counts(fleet: Fleet) -> str:
    """Return a text that counts the check results of all nodes, or "" if no check ran."""
    if not fleet.checks:
        return ""
    totals = Counter[str]()
    for each in fleet.checks:
        totals.update(dict(each.ends))
    counts = ", ".join(f"{totals[outcome.value]} {outcome_word(outcome)}" for outcome in CheckOutcome)
    blind = {each.check: dict(each.ends)[CheckOutcome.COULD_NOT_LOOK.value] for each in fleet.checks}
    most = sorted((name for name in blind if blind[name]), key=lambda name: (-blind[name], name))[:MOST_BLIND]
    named = ", ".join(f"{line(name)} on {counted(blind[name], 'node')}" for name in most)
    return f"{counts}{f'; inconclusive: {named}' if named else ''}"


def caveats(fleet: Fleet) -> list[str]:
    """Return warnings about simulated nodes, interrupted checks and runs with --shadow."""
    found = []
    if fleet.simulated or fleet.is_simulated:
        found.append(f"SIMULATED, so unknown: {_named(fleet.simulated)}.")
    if fleet.interrupted:
        found.append(f"Nodes whose check was interrupted: {_named(fleet.interrupted)}.")
    if fleet.would_drain:
        found.append(f"Nodes that a run without --shadow would drain: {len(fleet.would_drain)}.")
    return found


def _named(hosts: Sequence[str]) -> str:
    return f"{len(hosts)} ({shorten(line(compress(hosts)), MOST_NAMED)})"


def render_host_list(hosts: Sequence[str], reasons: Mapping[str, str] = MappingProxyType({})) -> str:
    """Return a text with one host per line.

    If there is a reason for a host, a comment above the host says the reason.
    """
    names = sorted(set(hosts))
    lines = [f"# {clean(compress(names)) or 'nobody'}"]
    for name in names:
        reason = reasons.get(name, "")
        lines += [*([f"# {line(name)}: {line(reason)}"] if reason else []), clean(name)]
    return "\n".join(lines) + "\n"


def odd_reasons(fleet: Fleet) -> dict[str, str]:
    """Return the reason why each node is an outlier, as {host: reason}."""
    return {host: reason for reason, host in _odd(fleet.groups)}


def state_reasons(states: Sequence[NodeState]) -> dict[str, str]:
    """Return the reason for the state of each node, as {host: reason}."""
    return {state.host: why_of(state) for state in states}


def odd_hosts(fleet: Fleet) -> set[str]:
    """Return the hosts that differ from other hosts with the same hardware."""
    return {each.host for group in fleet.groups for each in group.odd}


def failing_hosts(fleet: Fleet) -> tuple[str, ...]:
    """Return the hosts whose own report says that the host failed.

    Hosts that are only outliers are left out.
    """
    return tuple(sorted({state.host for state in fleet.failing}))


def odd_by_host(group: Group) -> dict[str, list[Odd]]:
    """Return the unusual values of each outlier in `group`, as {host: values}.

    The speeds of small messages come last.
    """
    by_host: dict[str, list[Odd]] = {}
    for each in sorted(group.odd, key=lambda odd: odd.what.endswith(SMALL)):
        by_host.setdefault(each.host, []).append(each)
    return by_host


def why_of(state: NodeState) -> str:
    """Return the reasons for a node's state in one line, or the verdict if there are no reasons."""
    return "; ".join(state.reasons) or state.verdict


def left_out(title: str, files: Sequence[Unread], more: str = "; all of them are in --json") -> list[Block]:
    """Return a section that lists the files that were not read, with the reasons.

    If some files are not shown, the text ends with `more`.
    """
    return _counted(title, [f"{file.path}: {file.reason}" for file in files], more)


def _states(title: str, states: Sequence[NodeState]) -> list[Block]:
    return _counted(title, [f"{state.host}: {why_of(state)}" for state in states])


def _counted(title: str, lines: Sequence[str], more: str = "; all of them are in --json") -> list[Block]:
    return [Heading(f"{title} ({len(lines)})"), *_first(lines, more)] if lines else []


def _first(lines: Sequence[str], more: str = "; all of them are in --json") -> list[Block]:
    rest = len(lines) - MOST_LINES
    return [*map(item, lines[:MOST_LINES]), *([note(f"... and {rest} more{more}")] if rest > 0 else [])]


def _group(group: Group) -> list[Block]:
    kind = ", ".join(f"{name}: {value}" for name, value in group.kind)
    start = f"{len(group.hosts)} nodes: "
    blocks: list[Block] = [
        Heading(kind, limit=lambda width: max(20, width - 20), label=start),
        Text(compress(group.hosts), 2, most_lines=MOST_HOST_LINES),
        *([note(group.problem)] if group.problem else []),
        *_first([f"{host}: {odd_text(odd, group.metrics)}" for host, odd in odd_by_host(group).items()]),
    ]
    if not group.odd and not group.problem:
        blocks.append(note(f"no outliers in {counted(len(group.metrics), 'metric')}"))
    for drift in group.drift:
        blocks += [note(f"differs: {drift.name}"), _drift(drift)]
    return blocks


def odd_text(odd: Sequence[Odd], metrics: Sequence[Metric]) -> str:
    """Return a sentence that says why a node is an outlier.

    `odd` has the unusual values of the node. `metrics` has the metrics of the node's group.
    """
    worst, slow = odd[0], _slow(odd)
    if slowness := slowness_text(odd, metrics):
        left = len(odd) - len(slow)
        others = f"; the node is an outlier in {counted(left, 'other metric')} too" if left else ""
        return f"{slowness}; {_reading(slow[0])}, but other nodes have {slow[0].usual}{others}"
    others = f"; the node is an outlier in {counted(len(odd) - 1, 'other metric')} too" if len(odd) > 2 else ""
    others = f"; also {_reading(odd[1])}, not {odd[1].usual}" if len(odd) == 2 else others
    return f"{_reading(worst)}, but other nodes have {worst.usual}{others}"


def _reading(odd: Odd, joint: str = " is") -> str:
    """Return an unusual value in words, such as `all_gather 1 MiB busbw is 0.47 GB/s`.

    The unit at the end of the metric's name is printed after the value.
    """
    name, unit, _ = odd.what.rpartition(" GB/s")
    return f"{name}{joint} {odd.value}{unit}" if unit else f"{odd.what}{joint} {odd.value}"


def slowness_text(odd: Sequence[Odd], metrics: Sequence[Metric]) -> str:
    """Return a text such as `slower in 5 of 9 speeds (median 20%)`, or "" if only few speeds are slower."""
    slow, speeds = _slow(odd), sum(_is_speed(each.name) for each in metrics)
    if len(slow) < MANY:
        return ""
    median = 1 - statistics.median(each.share for each in slow)
    return f"slower in {len(slow)} of {speeds} speeds (median {median:.0%})"


def _slow(odd: Sequence[Odd]) -> list[Odd]:
    return [each for each in odd if _is_speed(each.what) and 0 < each.share < 1]


def _is_speed(metric: str) -> bool:
    return metric.endswith("/s")


def _drift(drift: Drift) -> Table:
    rows = [(str(len(hosts)), value, compress(hosts)) for value, hosts in drift.values[:5]]
    return replace(table(DRIFT_HEADERS, rows), indent=4)


def _hosts(hosts: Sequence[str]) -> str:
    return f"{compress(hosts)} ({len(hosts)})" if len(hosts) > 1 else hosts[0]


def _files(paths: Sequence[str]) -> str:
    return counted(len(paths), "file") if len(paths) > 1 else paths[0]


def _alike(
    word: str, tone: str, entries: Iterable[tuple[str, str]], named: Callable[[Sequence[str]], str] = _hosts
) -> list[list[Block]]:
    """Return a line for each reason, with the names of all hosts or files to which the reason applies."""
    label = f"{word:<4}  "
    said = [f"{named(names)}: {reason}" for reason, names in grouped(entries).items()]
    return [[Text(each, 0, 6, label=label, label_tone=tone, most_lines=3)] for each in said]


def _odd(groups: Iterable[Group]) -> Iterable[tuple[str, str]]:
    for group in groups:
        for host, odd in odd_by_host(group).items():
            yield odd_text(odd, group.metrics), host


def _unnamed(group: Group) -> list[Drift]:
    """Return the settings that differ within a group without making any node an outlier."""
    named = {odd.what for odd in group.odd}
    return [each for each in group.drift if each.name not in named]


def _short_drift(drift: Drift) -> Block:
    values = [f"{value} on {len(hosts)} ({compress(hosts)})" for value, hosts in drift.values[:MOST_VALUES]]
    return Text(f"{drift.name}: {'; '.join(values)}", 0, 6, label="DIFFERS  ", label_tone="dim", most_lines=2)


def _short_group(group: Group) -> Block:
    kind = ", ".join(f"{name}: {value}" for name, value in group.kind)
    said = group.problem or f"{counted(len(group.metrics), 'metric')} compared"
    text = f"{counted(len(group.hosts), 'node')} ({kind}): {said}"
    return Text(text, 0, 6, label="GROUP  ", label_tone="dim", most_lines=2)


def _next(fleet: Fleet, out: str) -> str:
    """Return the next step for the user, and the list of the hosts that this step concerns."""

    def those(name: str, else_: str) -> str:
        return f"the nodes in {quoted_path(out.rstrip('/') + '/' + name)}" if out else else_

    if not fleet.nodes:
        return "give reports of `preflight check`, or folders that hold them as *.json"
    if fleet.failing:
        more = f". Before you drain an outlier, run {COMPARE}" if odd_hosts(fleet) else ""
        more += ". Check the unknown nodes again" if fleet.unknown else ""
        return f"drain {those('failing_nodes.txt', 'the failed nodes')}, and repair the fault named for each node{more}"
    if fleet.would_drain:
        return (
            f"check {those('would_drain_nodes.txt', 'the nodes that would be drained')}, because a run without "
            f"--shadow would drain these nodes"
        )
    if odd_hosts(fleet):
        return (
            f"do not drain {those('odd_nodes.txt', 'the outliers')} yet: compare each node with a good node of its "
            f"group ({COMPARE})"
        )
    if fleet.unknown:
        return f"run `preflight check` again on {those('unknown_nodes.txt', 'the unknown nodes')}"
    return "none; `preflight baseline` computes thresholds from these reports"
