"""A way between two nodes that carries small packets and drops large ones: a hop with a smaller MTU tells nobody."""

from __future__ import annotations

from collections.abc import Iterator

from preflight.judge.check import Case, RunCheck
from preflight.judge.netif_usable import default_works
from preflight.judge.run.ways import first_hosts
from preflight.judge.workaround import proven_severity
from preflight.model.between import Between, PathEnd, PathResult
from preflight.model.finding import Blame, Evidence, Finding, Severity

IP_AND_ICMP_BYTES = 28


def judge(case: Case) -> Iterator[Finding]:
    """Yield one finding per interface name: a WARN, and FAIL where nothing works for it."""
    between = case.between
    if between is None:
        return
    by_netif: dict[str, list[PathResult]] = {}
    for result in between.results:
        if result.end is PathEnd.SMALL_ONLY:
            by_netif.setdefault(result.netif, []).append(result)
    for netif, results in by_netif.items():
        hosts = [between.host_of(rank) for r in results for rank in (r.from_node, r.to_node)]
        first = results[0]
        target = between.offer(first.to_node, first.to_netif)
        address = target.address if target else between.host_of(first.to_node)
        mtu = _mtu(between, first)
        yield Finding(
            check=CHECK.name,
            blame=CHECK.blame,
            severity=Severity.WARN if default_works(case) else proven_severity(case),
            subject=f"{netif} between {first_hosts(hosts)}",
            problem=f"small packets get through, large ones are dropped: some hop carries less than the {netif}'s MTU"
            + (f" of {mtu}" if mtu else ""),
            fix=f"`ping -M do -s {(mtu or 1500) - IP_AND_ICMP_BYTES} {address}` on {between.host_of(first.from_node)}, "
            f"smaller until it answers; then that MTU at the switch, or `ip link set {netif} mtu N` on every node",
            evidence=tuple(
                Evidence(
                    f"{between.host_of(r.from_node)} {r.netif} to {between.host_of(r.to_node)} {r.to_netif}",
                    f"{r.detail} (MTU {_mtu(between, r) or 'not known'})",
                    "a TCP connection between the nodes",
                )
                for r in results[:8]
            ),
        )


def _mtu(between: Between, result: PathResult) -> int:
    offer = between.offer(result.from_node, result.netif)
    return offer.mtu if offer is not None and isinstance(offer.mtu, int) else 0


CHECK = RunCheck(
    name="path-drops-large",
    promise="what fits an interface's MTU arrives at the other nodes",
    blame=Blame.FABRIC,
    reads=("netifs",),
    blind_to="RDMA traffic, and whether jumbo frames that TCP does not negotiate would pass",
    judge=judge,
)
