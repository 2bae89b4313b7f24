from __future__ import annotations

from collections import Counter, defaultdict

from preflight.errors import NotApplicable
from preflight.judge.check import Case, Findings, run_check
from preflight.judge.finding_text import first_hosts
from preflight.judge.workarounds import ONE_NODE, default_works, proven_severity
from preflight.model.finding import Blame, Evidence, Severity, Unseen
from preflight.model.network_survey import NetworkSurvey, PathEnd, PathResult

# Nobody's fault, or another check's.
OTHER_REASONS = frozenset({PathEnd.OK, PathEnd.ITSELF, PathEnd.SMALL_ONLY, PathEnd.UNTRIED})
MEANING = {
    PathEnd.REFUSED: "refused: a firewall rejects connections, or another host has that address",
    PathEnd.NO_ROUTE: "there is no route from its network to the other nodes",
    PathEnd.DROPPED: "no answer: a firewall or a switch drops packets, or the interface is in another network",
    PathEnd.STRANGER: "another program answers, so another host has that address",
    PathEnd.FAILED: "connections fail",
}


@run_check("netif-reaches-nobody", blame=Blame.FABRIC, unseen=Unseen.NOTHING, reads=("netifs",))
def netif_reaches_nobody(case: Case) -> Findings:
    """Every interface that looks usable reaches another node.

    Yields a problem for each name of an interface that reaches no other node. The problem is an INFO if the default
    settings work, a WARN if other settings work, else a FAIL.

    Can't see: interfaces without a match by name or network on another node, and runs of more than 16 nodes.
    """
    # An interface that is up and has an address may still reach no other node.
    between = case.between
    if between is None:
        raise NotApplicable(ONE_NODE)
    lonely: dict[str, dict[int, list[PathResult]]] = defaultdict(dict)
    for (node_rank, netif), tried in _by_place(between).items():
        if all(result.end not in OTHER_REASONS for result in tried):
            lonely[netif][node_rank] = tried
    for netif, by_node in lonely.items():
        results = [result for tried in by_node.values() for result in tried]
        ((most, _),) = Counter(result.end for result in results).most_common(1)
        first = next(iter(by_node))
        offer, chosen = between.offer(first, netif), between.chosen_set
        other = dict(chosen.netifs).get(first, "") if chosen else ""
        use = f"; the job can use {other}" if other else ""
        yield netif_reaches_nobody.finding(
            Severity.INFO if default_works(case) else proven_severity(case),
            f"{netif} on {first_hosts(map(between.host_of, by_node))}",
            f"the interface reaches no other node ({MEANING[most]}){use}",
            f"run `ip route get ADDRESS from {offer.address if offer else 'ADDRESS'}` on {between.host_of(first)}. If "
            f"the route is right, check the interface's cable, VLAN or firewall",
            *(
                _path(between, each, each.end.value + (f": {each.detail}" if each.detail else ""))
                for each in results[:8]
            ),
        )


def _by_place(between: NetworkSurvey) -> dict[tuple[int, str], list[PathResult]]:
    """Return the connection attempts by interface.

    An attempt is listed under its source and under its target.

    The result is empty if successful attempts may be missing from the results.
    """
    found: dict[tuple[int, str], list[PathResult]] = defaultdict(list)
    # If results were left out, nothing proves that no node was reached.
    for result in () if between.untold else between.results:
        found[result.from_node, result.netif].append(result)
        found[result.to_node, result.to_netif].append(result)
    return found


def _path(between: NetworkSurvey, path: PathResult, shown: str) -> Evidence:
    """Return the result of a connection attempt between two interfaces as evidence."""
    ways = f"{between.host_of(path.from_node)} {path.netif} to {between.host_of(path.to_node)} {path.to_netif}"
    return Evidence(ways, shown, "a TCP connection between the nodes")


@run_check("netif-same-address", blame=Blame.CONFIGURATION, unseen=Unseen.NOTHING, reads=("netifs",))
def netif_same_address(case: Case) -> Findings:
    """No two nodes have the same address.

    Yields an INFO for each address that several nodes have, or a WARN if the default settings failed.

    Can't see: nodes that took no part in the run.
    """
    # If several nodes have the same address (often the address of docker0), a node that connects to the address reaches
    # itself.
    if case.between is None:
        raise NotApplicable(ONE_NODE)
    places: dict[str, dict[str, str]] = defaultdict(dict)
    for node in case.between.nodes:
        for offer in node.offers:
            places[offer.address][node.host] = offer.netif
    for address, owners in places.items():
        if len(owners) < 2:
            continue
        names = "/".join(sorted(set(owners.values())))
        yield netif_same_address.finding(
            Severity.INFO if default_works(case) else Severity.WARN,
            f"{names} on {first_hosts(owners)}",
            f"{len(owners)} nodes have the address {address}, so a node that connects to it reaches itself",
            "do not name this interface in NCCL_SOCKET_IFNAME or GLOO_SOCKET_IFNAME, or give each node a different "
            "address",
            *(Evidence(f"{host} {netif}", address, "getifaddrs") for host, netif in list(owners.items())[:8]),
        )


IP_AND_ICMP_BYTES = 28


@run_check("path-drops-large", blame=Blame.FABRIC, unseen=Unseen.NOTHING, reads=("netifs",))
def path_drops_large(case: Case) -> Findings:
    """Packets that fit an interface's MTU arrive at the other nodes.

    Yields a WARN for each interface name that drops large packets, or a FAIL if the default settings fail without a
    workaround.

    Can't see: RDMA traffic, and whether jumbo frames would pass if TCP does not negotiate them.
    """
    # A hop with a smaller MTU carries small packets and silently drops large ones.
    between = case.between
    if between is None:
        raise NotApplicable(ONE_NODE)
    by_netif: dict[str, list[PathResult]] = defaultdict(list)
    for result in between.results:
        if result.end is PathEnd.SMALL_ONLY:
            by_netif[result.netif].append(result)
    for netif, results in by_netif.items():
        hosts = [between.host_of(rank) for r in results for rank in (r.from_node, r.to_node)]
        first = results[0]
        target = between.offer(first.to_node, first.to_netif)
        address = target.address if target else between.host_of(first.to_node)
        mtu = _mtu(between, first)
        yield path_drops_large.finding(
            Severity.WARN if default_works(case) else proven_severity(case),
            f"{netif} between {first_hosts(hosts)}",
            f"small packets arrive but large packets are dropped, so a hop has a smaller MTU than {netif}"
            + (f" ({mtu})" if mtu else ""),
            f"run `ping -M do -s {(mtu or 1500) - IP_AND_ICMP_BYTES} {address}` on {between.host_of(first.from_node)}, "
            f"with smaller sizes until it answers. Then set that MTU at the switch, or run `ip link set {netif} mtu "
            "N` on every node",
            *(_path(between, r, f"{r.detail} (MTU {_mtu(between, r) or 'not known'})") for r in results[:8]),
        )


def _mtu(between: NetworkSurvey, result: PathResult) -> int:
    offer = between.offer(result.from_node, result.netif)
    return offer.mtu if offer is not None and isinstance(offer.mtu, int) else 0
