"""An interface that is up and has an address, but from which no other node was reached and none reached it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from preflight.judge.check import Case, RunCheck
from preflight.judge.netif_usable import default_works
from preflight.judge.run.ways import first_hosts
from preflight.judge.workaround import proven_severity
from preflight.model.between import Between, PathEnd, PathResult
from preflight.model.finding import Blame, Evidence, Finding, Severity

# Nobody's fault, or another check's.
OTHER_REASONS = frozenset({PathEnd.OK, PathEnd.ITSELF, PathEnd.SMALL_ONLY, PathEnd.UNTRIED})
MEANING = {
    PathEnd.REFUSED: "refused: a firewall rejects it, or another host has that address",
    PathEnd.NO_ROUTE: "no route from its network to theirs",
    PathEnd.DROPPED: "no answer: a firewall or a switch drops it, or it leads into another network",
    PathEnd.STRANGER: "another program answers there: another host has that address",
    PathEnd.FAILED: "the attempts fail",
}


def judge(case: Case) -> Iterator[Finding]:
    """Yield a finding per interface name: INFO where the job does without it, else as bad as what it broke."""
    between = case.between
    if between is None:
        return
    lonely: dict[str, dict[int, list[PathResult]]] = {}
    for place, tried in _by_place(between).items():
        if all(result.end not in OTHER_REASONS for result in tried):
            lonely.setdefault(place[1], {})[place[0]] = tried
    for netif, by_node in lonely.items():
        results = [result for tried in by_node.values() for result in tried]
        ((most, _),) = Counter(result.end for result in results).most_common(1)
        hosts = [between.host_of(rank) for rank in by_node]
        chosen = between.chosen_set
        other = dict(chosen.netifs).get(next(iter(by_node)), "") if chosen else ""
        use = f"; the job can use {other}" if other else ""
        yield Finding(
            check=CHECK.name,
            blame=CHECK.blame,
            severity=Severity.INFO if default_works(case) else proven_severity(case),
            subject=f"{netif} on {first_hosts(hosts)}",
            problem=f"no other node is reached through it ({MEANING[most]}){use}",
            fix=f"`ip route get ADDRESS from {_address(between, next(iter(by_node)), netif)}` on "
            f"{hosts[0]}; else its cable, VLAN or firewall",
            evidence=tuple(
                Evidence(
                    f"{between.host_of(r.from_node)} {r.netif} to {between.host_of(r.to_node)} {r.to_netif}",
                    f"{r.end.value}: {r.detail}" if r.detail else r.end.value,
                    "a TCP connection between the nodes",
                )
                for r in results[:8]
            ),
        )


def _by_place(between: Between) -> dict[tuple[int, str], list[PathResult]]:
    """Return every attempt from or to each interface."""
    found: dict[tuple[int, str], list[PathResult]] = {}
    if between.untold:  # what worked is not listed: then nothing proves that nobody was reached
        return found
    for result in between.results:
        found.setdefault((result.from_node, result.netif), []).append(result)
        found.setdefault((result.to_node, result.to_netif), []).append(result)
    return found


def _address(between: Between, node_rank: int, netif: str) -> str:
    offer = between.offer(node_rank, netif)
    return offer.address if offer else "ADDRESS"


CHECK = RunCheck(
    name="netif-reaches-nobody",
    promise="every interface that looks usable reaches another node",
    blame=Blame.FABRIC,
    reads=("netifs",),
    blind_to="interfaces that no other node has a match for by name or network, and runs of more than 16 nodes",
    judge=judge,
)
