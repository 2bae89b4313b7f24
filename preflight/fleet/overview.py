"""From the digests of many reports to the overview: the newest of each host, who passes, who fails, who is odd."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from preflight.errors import MalformedInput
from preflight.fleet.digest import NodeDigest, digest
from preflight.fleet.outliers import compare_nodes
from preflight.model.fleet import Fleet, NodeState, Unread

READY = ("ready", "ready_with_env")


def overview(documents: Iterable[tuple[str, object, str]]) -> Fleet:
    """Return the overview of (path, document, problem) as they come; what is no report is listed."""
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
            if other is None or node.created_at >= other.created_at:
                newest[node.host] = node
            if other is not None and not _is_copy(node, other):
                kept = newest[node.host]
                lost = other if kept is node else node
                replaced.append(Unread(lost.path, f"a newer report of {node.host} is {kept.path}"))
    nodes = sorted(newest.values(), key=lambda node: node.host)
    groups = compare_nodes(nodes)
    odd = {each.host for group in groups for each in group.odd}
    failing = tuple(_state(node) for node in nodes if _is_failing(node))
    unknown = tuple(_state(node) for node in nodes if not _is_failing(node) and not _is_passing(node))
    passing = tuple(node.host for node in nodes if _is_passing(node) and node.host not in odd)
    return Fleet(
        reports, len(nodes), passing, failing, unknown, groups, tuple(unread), tuple(replaced),
        any(node.is_simulated for node in nodes),
    )  # fmt: skip


def _digests(path: str, document: object, problem: str) -> tuple[NodeDigest, ...] | Unread:
    if problem:
        return Unread(path, problem)
    try:
        return digest(path, document)
    except MalformedInput as error:
        return Unread(path, str(error).removeprefix(f"{path}: "))


def _is_copy(one: NodeDigest, other: NodeDigest) -> bool:
    """Tell whether two digests are of one report: each node of a common run writes it."""
    return one == replace(other, path=one.path)


def _is_failing(node: NodeDigest) -> bool:
    return node.node_verdict == "reject" if node.node_verdict else node.verdict == "not_ready"


def _is_passing(node: NodeDigest) -> bool:
    return node.node_verdict == "accept" if node.node_verdict else node.verdict in READY


def _state(node: NodeDigest) -> NodeState:
    return NodeState(node.host, node.path, node.node_verdict or node.verdict, node.failures)
