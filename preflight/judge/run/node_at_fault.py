"""One bad node among many: named by small groups, in which it fails with nodes that work with all others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from preflight.judge.check import Case, RunCheck
from preflight.model.finding import Blame, Evidence, Finding, Severity
from preflight.model.gap import Gap
from preflight.model.isolation import ALL_RANKS, BadPath, GroupSeen, GroupTrial, Isolation, WayKind, WayTrial

FAIL_BELOW = 0.5  # of the speed of the nodes beside it
MOST_SHOWN = 8
NOUNS = {WayKind.NETIF: "interface", WayKind.PORT: "RDMA port"}
SHOWN_OUTCOMES = {"hang": "hung", "crash": "crashed", "wrong_data": "got wrong data", "init_error": "did not start"}


def judge(case: Case) -> Iterator[Finding]:
    """Yield a finding per node at fault and per bad path, and one for what could not be told."""
    seen = case.isolation
    if seen is None:
        return
    hosts = tuple(node.host for node in case.nodes)
    for node in seen.dead:
        yield _dead(node, seen, hosts)
    for node in seen.slow:
        yield _slow(node, seen, hosts)
    for path in seen.paths:
        yield _bad_path(path, seen, hosts)
    named = seen.dead or seen.slow or seen.paths
    if seen.unresolved or (seen.is_failing and seen.rounds and not named):
        yield _open(seen, hosts)


def _dead(node: int, seen: Isolation, hosts: Sequence[str]) -> Finding:
    failed = _of(node, seen, GroupSeen.DEAD)
    return Finding(
        check=CHECK.name,
        blame=Blame.FABRIC,
        severity=Severity.FAIL,
        subject=_name(node, hosts),
        problem=f"{_name(node, hosts)} is dead: it fails with {_partners(node, failed, hosts)}, which "
        f"{_work(failed)} with others{_single(node, seen)}{_by_way(node, seen, hosts)}",
        fix=f"take {_name(node, hosts)} out of the job; look at {_first_look(node, seen)} (`ip -s link`, "
        "`ibstat`, `perfquery`, `dmesg | tail`)",
        evidence=(*_evidence(failed, hosts), *_way_evidence(node, seen, hosts)),
    )


def _slow(node: int, seen: Isolation, hosts: Sequence[str]) -> Finding:
    failed = _of(node, seen, GroupSeen.SLOW)
    own = max(_speeds(failed), default=0.0)
    others = sorted(_speeds([g for done in seen.rounds for g in done.groups if g.seen is GroupSeen.OK]))
    beside = others[len(others) // 2] if others else 0.0
    return Finding(
        check=CHECK.name,
        blame=Blame.FABRIC,
        severity=Severity.FAIL if own < FAIL_BELOW * beside else Severity.WARN,
        subject=_name(node, hosts),
        problem=f"{_name(node, hosts)} is slow: {own:.3g} GB/s at best with {_partners(node, failed, hosts)}, which "
        f"{_reach(failed)} {beside:.3g} GB/s with others{_single(node, seen)}{_by_way(node, seen, hosts)}",
        fix=f"compare {_name(node, hosts)} with the others: link speed and width, retransmissions (`ethtool`, `nstat`, "
        "`ibstat`), clocks and throttling of its GPUs, what else runs there",
        evidence=(*_evidence(failed, hosts), *_way_evidence(node, seen, hosts)),
    )


def _bad_path(path: BadPath, seen: Isolation, hosts: Sequence[str]) -> Finding:
    both = [g for done in seen.rounds for g in done.groups if {path.a, path.b} == set(g.nodes)]
    names = f"{_name(path.a, hosts)} and {_name(path.b, hosts)}"
    return Finding(
        check=CHECK.name,
        blame=Blame.FABRIC,
        severity=Severity.WARN,
        subject=names,
        problem=f"{names} fail or are slow together, and each works with others: the path between them, or a passing "
        "disturbance",
        fix="look at the switches and routes between these two; run again to see whether it stays",
        evidence=_evidence([g for g in both if g.seen is not GroupSeen.OK], hosts),
    )


def _open(seen: Isolation, hosts: Sequence[str]) -> Finding:
    who = ", ".join(_name(node, hosts) for node in seen.unresolved[:MOST_SHOWN])
    more = f" and {len(seen.unresolved) - MOST_SHOWN} more" if len(seen.unresolved) > MOST_SHOWN else ""
    named = f"{who}{more} could be neither cleared nor accused" if who else f"{seen.why}, and no node can be named"
    return Finding(
        check=CHECK.name,
        blame=Blame.FABRIC,
        severity=Severity.INFO,
        subject=f"{len(hosts)} nodes",
        problem=f"{named}{f': {seen.told}' if seen.told else ''}",
        fix="",
        evidence=(Evidence("rounds", str(len(seen.rounds)), f"groups of nodes, candidate {seen.candidate}"),),
    )


def _of(node: int, seen: Isolation, how: GroupSeen) -> list[GroupTrial]:
    """Return the groups in which a node showed its fault; of a slow one that also failed, both."""
    found = [g for done in seen.rounds for g in done.groups if node in g.nodes]
    return [g for g in found if g.seen is how] or [g for g in found if g.seen is not GroupSeen.OK]


def _speeds(groups: Sequence[GroupTrial]) -> list[float]:
    return [each.busbw_gb_s for each in groups if not isinstance(each.busbw_gb_s, Gap)]


def _partners(node: int, groups: Sequence[GroupTrial], hosts: Sequence[str]) -> str:
    names = list(dict.fromkeys(_name(other, hosts) for group in groups for other in group.nodes if other != node))
    more = f" and {len(names) - MOST_SHOWN} more" if len(names) > MOST_SHOWN else ""
    shown = names[:MOST_SHOWN]
    if more or len(shown) == 1:
        return ", ".join(shown) + more
    return f"{', '.join(shown[:-1])} and {shown[-1]}"


def _work(groups: Sequence[GroupTrial]) -> str:
    return "work" if sum(len(each.nodes) - 1 for each in groups) > 1 else "works"


def _reach(groups: Sequence[GroupTrial]) -> str:
    return "reach" if sum(len(each.nodes) - 1 for each in groups) > 1 else "reaches"


def _single(node: int, seen: Isolation) -> str:
    """Return what the node's ranks showed one by one: a single GPU or rail, or the node as a whole."""
    own = [g for g in seen.rank_by_rank if g.nodes[0] == node and g.local_rank != ALL_RANKS]
    bad = [str(g.local_rank) for g in own if g.seen in (GroupSeen.DEAD, GroupSeen.SLOW)]
    if not own or any(g.seen is GroupSeen.UNTRIED for g in own):
        return ""
    if not bad:
        return "; each of its ranks by itself works with the same rank of a good node"
    if len(bad) == len(own):
        return "; so does each of its ranks by itself"
    word = "rank" if len(bad) == 1 else "ranks"
    return f"; of its ranks only local {word} {', '.join(bad)} so: that GPU, its NIC or its rail"


def _by_way(node: int, seen: Isolation, hosts: Sequence[str]) -> str:
    """Return what the node's interfaces and RDMA ports showed one by one: some of them, or the node as a whole."""
    own, bad = _ways(node, seen)
    if not own:
        return ""
    partner = _name(own[0].trial.nodes[1], hosts)
    if not bad:
        return f"; over {_alone(own)} it works with {partner}"
    if len(bad) == len(own):
        return f"; over {_alone(own)} too: the node rather than one of them"
    good = [each for each in own if each not in bad]
    how = "it is slow" if all(each.shown is GroupSeen.SLOW for each in bad) else "it does not"
    return f"; over {_alone(good)} it works with {partner}; over {_alone(bad)} {how}: {_blamed(bad)}"


def _ways(node: int, seen: Isolation) -> tuple[list[WayTrial], list[WayTrial]]:
    """Return the ways of a node that prove something and, of them, those that are bad; none where only one was tried.

    Of a slow node only those that good nodes tried too: a slow interface may be no faster anywhere.
    """
    own = [each for each in seen.by_way if each.trial.nodes[0] == node and each.shown is not GroupSeen.UNTRIED]
    if node in seen.slow:
        own = [each for each in own if each.shown is GroupSeen.DEAD or isinstance(each.beside, GroupTrial)]
    own = own if len(own) > 1 else []
    return own, [each for each in own if each.shown is not GroupSeen.OK]


def _alone(ways: Sequence[WayTrial]) -> str:
    names = [each.own for each in ways]
    return f"each of {', '.join(names)} alone" if len(names) > 1 else f"{names[0]} alone"


def _blamed(bad: Sequence[WayTrial]) -> str:
    nouns = [NOUNS[kind] for kind in WayKind if kind in {each.kind for each in bad}]
    # Interfaces were tried between the good nodes before the trials; a port of a storage network may work nowhere.
    unless = ""
    if any(each.kind is WayKind.PORT and isinstance(each.beside, Gap) for each in bad):
        unless = ", unless it works nowhere: too few good nodes were left to try it"
    if len(bad) == 1:
        return f"that {nouns[0]}, its cable or its switch port{unless}"
    return f"those {' and '.join(f'{noun}s' for noun in nouns)}, their cables or switch ports{unless}"


def _first_look(node: int, seen: Isolation) -> str:
    own, bad = _ways(node, seen)
    if bad and len(bad) < len(own):
        return f"{', '.join(each.own for each in bad)} there, the cable and the switch port"
    return "its links, cables and switch ports"


def _way_evidence(node: int, seen: Isolation, hosts: Sequence[str]) -> tuple[Evidence, ...]:
    own, _ = _ways(node, seen)
    return tuple(
        Evidence(f"{_name(node, hosts)} {each.own} + {_name(each.trial.nodes[1], hosts)} {each.other}",
                 _shown(each.trial), "group trial")
        for each in own[:MOST_SHOWN]
    )  # fmt: skip


def _evidence(groups: Sequence[GroupTrial], hosts: Sequence[str]) -> tuple[Evidence, ...]:
    return tuple(
        Evidence(" + ".join(_name(node, hosts) for node in each.nodes[:MOST_SHOWN]), _shown(each), "group trial")
        for each in groups[:MOST_SHOWN]
    )


def _shown(group: GroupTrial) -> str:
    if isinstance(group.busbw_gb_s, Gap):
        told = SHOWN_OUTCOMES.get(group.outcome.value, group.outcome.value)
        return f"{told}: {group.problem}" if group.problem else told
    return f"{group.busbw_gb_s:.3g} GB/s all_reduce"


def _name(node: int, hosts: Sequence[str]) -> str:
    return hosts[node] if node < len(hosts) else f"node {node}"


CHECK = RunCheck(
    name="node-at-fault",
    promise="small groups of nodes accuse no node where all together fail or are slow",
    blame=Blame.FABRIC,
    reads=("isolation",),
    blind_to="runs of fewer than three nodes; faults that come and go between two rounds",
    judge=judge,
)
