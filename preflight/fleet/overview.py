"""Build the overview of a fleet from many reports. The newest report of each host counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from preflight.errors import MalformedInput
from preflight.fleet.digest import NodeDigest, digest
from preflight.fleet.outliers import compare_nodes
from preflight.model.finding import CheckOutcome
from preflight.model.fleet import CheckEnds, Fleet, NodeState, Unread

FAILING = {"reject", "not_ready"}
UNKNOWN = "unknown"
PASSING = {"accept", "ready", "ready_with_env"}


def overview(documents: Iterable[tuple[str, object, str]]) -> Fleet:
    """Return the overview of a fleet. `documents` has (path, document, problem) for each report.

    A file that is not a report is listed with the reason.
    """
    reports = 0
    unread: list[Unread] = []
    replaced: list[Unread] = []
    newest: dict[str, NodeDigest] = {}
    for path, document, problem in documents:
        found = _digests(path, document, problem)
        if isinstance(found, Unread):
            unread.append(found)
            continue
        reports += 1
        for node in found:
            other = newest.get(node.host)
            if other is None or _weight(node) >= _weight(other):
                newest[node.host] = node
            if other is not None and not _is_copy(node, other):
                kept = newest[node.host]
                lost = other if kept is node else node
                why = "simulated, and a real" if lost.is_simulated > kept.is_simulated else "a newer"
                replaced.append(Unread(lost.path, f"{why} report of {node.host} is {kept.path}"))
    nodes = sorted(newest.values(), key=lambda node: node.host)
    groups = compare_nodes(nodes)
    odd = {each.host for group in groups for each in group.odd}
    states = [_state(node) for node in nodes]
    shadows = {node.host for node in nodes if node.is_shadow}
    bad = [state for state in states if state.verdict in FAILING]
    failing = tuple(state for state in bad if state.host not in shadows)
    would_drain = tuple(state for state in bad if state.host in shadows)
    unknown = tuple(state for state in states if state.verdict not in FAILING | PASSING)
    passing = tuple(state.host for state in states if state.verdict in PASSING and state.host not in odd)
    return Fleet(
        reports, len(nodes), passing, failing, unknown, groups, tuple(unread), tuple(replaced),
        any(node.is_simulated for node in nodes), would_drain,
        tuple(node.host for node in nodes if node.is_simulated),
        tuple(node.host for node in nodes if node.is_interrupted), _checks(nodes),
    )  # fmt: skip


def _checks(nodes: Iterable[NodeDigest]) -> tuple[CheckEnds, ...]:
    counts = Counter(ended for node in nodes for ended in node.checks)
    known = {outcome.value for outcome in CheckOutcome}
    names = sorted({check for check, outcome in counts if outcome in known})
    return tuple(
        CheckEnds(name, tuple((outcome.value, counts[name, outcome.value]) for outcome in CheckOutcome))
        for name in names
    )


def _digests(path: str, document: object, problem: str) -> tuple[NodeDigest, ...] | Unread:
    if problem:
        return Unread(path, problem)
    try:
        return digest(path, document)
    except MalformedInput as error:
        return Unread(path, str(error).removeprefix(f"{path}: "))


def _is_copy(one: NodeDigest, other: NodeDigest) -> bool:
    """Return whether two digests come from copies of one report.

    Each node of a multi-node run writes a copy of the report.
    """
    return one == replace(other, path=one.path)


def _state(node: NodeDigest) -> NodeState:
    """Return the state of a node according to the verdict of the node's report.

    A simulated or incomplete report neither passes nor fails the node.
    """
    verdict, reasons = node.node_verdict or node.verdict, node.reasons
    if node.is_simulated:
        verdict, reasons = UNKNOWN, ("simulated, so it shows nothing about the real node", *reasons)
    elif node.is_interrupted and verdict in PASSING:
        verdict, reasons = UNKNOWN, ("interrupted before it finished", *reasons)
    return NodeState(node.host, node.path, verdict, reasons or (f"{verdict}, without a reason in the report",))


def _weight(node: NodeDigest) -> tuple[bool, str]:
    """Return the sort key of a report. For each host, the report with the largest key counts.

    A newer report has a larger key, but a simulated report never replaces a real one.
    """
    return not node.is_simulated, node.created_at
