from __future__ import annotations

from collections.abc import Sequence
from statistics import median_high

from preflight.errors import NotApplicable
from preflight.judge.check import Case, Findings, run_check
from preflight.judge.finding_text import first_named
from preflight.judge.workarounds import ONE_NODE
from preflight.model.bound import JUDGMENT, Bound
from preflight.model.finding import Blame, Evidence, Finding, Severity, Unseen
from preflight.model.gap import Gap
from preflight.model.isolation import ALL_RANKS, BadPath, GroupOutcome, GroupTrial, Isolation, RouteKind, RouteTrial
from preflight.search.nodes.group_rounds import SLOW_MADS, SLOW_SHARE

FAIL_BELOW = Bound(
    0.5, "of the median speed of the groups that are not slow; a slower node is a FAIL",
    "a node at half speed halves every job that it is part of",
    JUDGMENT,
    "too high: healthy hardware is blamed; too low: slow hardware passes",
)  # fmt: skip
MOST_SHOWN = 8
NOUNS = {RouteKind.NETIF: "interface", RouteKind.PORT: "RDMA port"}
SHOWN_OUTCOMES = {"hang": "hung", "crash": "crashed", "wrong_data": "got wrong data", "init_error": "did not start"}


@run_check(
    "node-at-fault",
    blame=Blame.FABRIC,
    unseen=Unseen.ACCEPTANCE,
    reads=("isolation",),
    bounds=(SLOW_SHARE, SLOW_MADS, FAIL_BELOW),
)
def node_at_fault(case: Case) -> Findings:
    """If all nodes together fail or are slow, tests in small groups find no node at fault.

    Yields one problem for each bad node and each bad path, and one problem if a cause stays unknown.

    Can't see: runs of fewer than three nodes, and faults that come and go between two rounds.
    """
    # A bad node fails in each of its groups, and the other nodes of these groups work in other groups.
    observed = case.isolation
    if len(case.nodes) < 2:
        raise NotApplicable(ONE_NODE)
    if observed is None or not (observed.rounds or observed.is_failing or observed.unresolved):
        raise NotApplicable("all nodes together work, so no groups were tested")
    hosts = tuple(node.host for node in case.nodes)
    for node in observed.dead:
        yield _accused(node, GroupOutcome.DEAD, observed, hosts)
    for node in observed.slow:
        yield _accused(node, GroupOutcome.SLOW, observed, hosts)
    for path in observed.paths:
        yield _bad_path(path, observed, hosts)
    named = observed.dead or observed.slow or observed.paths
    if observed.unresolved or (observed.is_failing and observed.rounds and not named):
        yield _open(observed, hosts)


def _accused(node: int, how: GroupOutcome, observed: Isolation, hosts: Sequence[str]) -> Finding:
    failed, name = _of(node, observed, how), _name(node, hosts)
    partners = _partners(node, failed, hosts)
    severity = Severity.FAIL
    if how is GroupOutcome.DEAD:
        problem = (
            f"is dead: it fails with {partners}, although {_verb(failed, 'that node works', 'those nodes work')} with "
            f"others"
        )
        look = f"check {_first_look(node, observed)} (`ip -s link`, `ibstat`, `perfquery`, `dmesg | tail`)"
        fix = f"take {name} out of the job. Then {look}"
    else:
        own = max(_speeds(failed), default=0.0)
        others = _speeds([g for done in observed.rounds for g in done.groups if g.observed is GroupOutcome.OK])
        beside = median_high(others) if others else 0.0
        severity = Severity.FAIL if own < FAIL_BELOW.value * beside else Severity.WARN
        reaching = f"{_verb(failed, 'reaches', 'reach')} {beside:.3g} GB/s with other nodes"
        problem = f"is slow: {own:.3g} GB/s at best with {partners}, which {reaching}"
        fix = (
            f"compare {name} with the other nodes in link speed and width, retransmissions (`ethtool`, `nstat`, "
            f"`ibstat`), clocks and throttling of the GPUs, and other processes"
        )
    return node_at_fault.finding(
        severity,
        name,
        f"{name} {problem}{_single(node, observed)}{_by_route(node, observed, hosts)}",
        fix,
        *_evidence(failed, hosts),
        *_route_evidence(node, observed, hosts),
    )


def _bad_path(path: BadPath, observed: Isolation, hosts: Sequence[str]) -> Finding:
    both = [g for done in observed.rounds for g in done.groups if {path.a, path.b} == set(g.nodes)]
    names = f"{_name(path.a, hosts)} and {_name(path.b, hosts)}"
    return node_at_fault.finding(
        Severity.WARN,
        names,
        f"{names} fail or are slow only with each other, so the path between them is at fault or was disturbed",
        "check the switches and routes between these two nodes, then rerun to see whether the fault stays",
        *_evidence([g for g in both if g.observed is not GroupOutcome.OK], hosts),
    )


def _open(observed: Isolation, hosts: Sequence[str]) -> Finding:
    who = first_named([_name(node, hosts) for node in observed.unresolved], MOST_SHOWN)
    named = f"{who} remain undecided" if who else f"{observed.why}, and no node is identifiable as the cause"
    return node_at_fault.finding(
        Severity.INFO,
        f"{len(hosts)} nodes",
        f"{named}{f': {observed.ended_because}' if observed.ended_because else ''}",
        "",
        Evidence("rounds of trials", str(len(observed.rounds)), f"groups of nodes, candidate {observed.candidate}"),
    )


def _of(node: int, observed: Isolation, how: GroupOutcome) -> list[GroupTrial]:
    """Return the group trials in which a node had the outcome `how`.

    If there are none, return all failed group trials of the node.
    """
    found = [g for done in observed.rounds for g in done.groups if node in g.nodes]
    return [g for g in found if g.observed is how] or [g for g in found if g.observed is not GroupOutcome.OK]


def _speeds(groups: Sequence[GroupTrial]) -> list[float]:
    return [each.busbw_gb_s for each in groups if not isinstance(each.busbw_gb_s, Gap)]


def _partners(node: int, groups: Sequence[GroupTrial], hosts: Sequence[str]) -> str:
    names = list(dict.fromkeys(_name(other, hosts) for group in groups for other in group.nodes if other != node))
    if len(names) > MOST_SHOWN or len(names) == 1:
        return first_named(names, MOST_SHOWN)
    return f"{', '.join(names[:-1])} and {names[-1]}"


def _verb(groups: Sequence[GroupTrial], of_one: str, of_several: str) -> str:
    return of_several if sum(len(each.nodes) - 1 for each in groups) > 1 else of_one


def _single(node: int, observed: Isolation) -> str:
    """Return a clause that names the node's ranks that failed when ranks were tested one by one.

    Return "" if not all ranks were tested.
    """
    own = [g for g in observed.rank_by_rank if g.nodes[0] == node and g.local_rank != ALL_RANKS]
    bad = [str(g.local_rank) for g in own if g.observed in (GroupOutcome.DEAD, GroupOutcome.SLOW)]
    if not own or any(g.observed is GroupOutcome.UNTRIED for g in own):
        return ""
    if not bad:
        return "; if tested alone, each of its ranks works with the same rank of a good node"
    if len(bad) == len(own):
        return "; each of its ranks shows the same fault if tested alone"
    word = "rank" if len(bad) == 1 else "ranks"
    return (
        f"; only its local {word} {', '.join(bad)} {'shows' if len(bad) == 1 else 'show'} this fault, so check that "
        f"GPU, its NIC and its rail"
    )


def _by_route(node: int, observed: Isolation, hosts: Sequence[str]) -> str:
    """Return a clause that names the node's interfaces and RDMA ports that failed when tested one by one.

    Return "" if the results are unknown.
    """
    own, bad = _routes(node, observed)
    if not own:
        return ""
    partner = _name(own[0].trial.nodes[1], hosts)
    if not bad:
        return f"; over {_alone(own)} the node works with {partner}"
    if len(bad) == len(own):
        return f"; over {_alone(own)} the node shows the same fault, so the node itself is at fault"
    good = [each for each in own if each not in bad]
    how = "is slow" if all(each.shown is GroupOutcome.SLOW for each in bad) else "fails"
    return f"; over {_alone(good)} the node works with {partner}; over {_alone(bad)} the node {how}, so {_blamed(bad)}"


def _routes(node: int, observed: Isolation) -> tuple[list[RouteTrial], list[RouteTrial]]:
    """Return (conclusive trials of a node's routes, trials that show a bad route).

    The second list is a part of the first list. Both lists are empty if only one route was tried. For a slow node, only
    routes that good nodes tried too count. The reason is that a slow interface may be slow on every node.
    """
    own = [each for each in observed.by_route if each.trial.nodes[0] == node and each.shown is not GroupOutcome.UNTRIED]
    if node in observed.slow:
        own = [each for each in own if each.shown is GroupOutcome.DEAD or isinstance(each.beside, GroupTrial)]
    own = own if len(own) > 1 else []
    return own, [each for each in own if each.shown is not GroupOutcome.OK]


def _alone(routes: Sequence[RouteTrial]) -> str:
    names = [each.own for each in routes]
    return f"each of {', '.join(names)} alone" if len(names) > 1 else f"{names[0]} alone"


def _blamed(bad: Sequence[RouteTrial]) -> str:
    nouns = [NOUNS[kind] for kind in RouteKind if kind in {each.kind for each in bad}]
    # Interfaces were tried between the good nodes before the trials; a port of a storage network may work nowhere.
    unless = ""
    if any(each.kind is RouteKind.PORT and isinstance(each.beside, Gap) for each in bad):
        unless = ", unless the port works on no node (too few good nodes were left to test this)"
    if len(bad) == 1:
        return f"that {nouns[0]}, its cable or its switch port is at fault{unless}"
    return f"those {' and '.join(f'{noun}s' for noun in nouns)}, their cables or switch ports are at fault{unless}"


def _first_look(node: int, observed: Isolation) -> str:
    own, bad = _routes(node, observed)
    if bad and len(bad) < len(own):
        return f"{', '.join(each.own for each in bad)} there, the cable and the switch port"
    return "its links, cables and switch ports"


def _route_evidence(node: int, observed: Isolation, hosts: Sequence[str]) -> tuple[Evidence, ...]:
    own, _ = _routes(node, observed)
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
        outcome = SHOWN_OUTCOMES.get(group.outcome.value, group.outcome.value)
        return f"{outcome}: {group.problem}" if group.problem else outcome
    return f"{group.busbw_gb_s:.3g} GB/s all_reduce"


def _name(node: int, hosts: Sequence[str]) -> str:
    return hosts[node] if node < len(hosts) else f"node {node}"
