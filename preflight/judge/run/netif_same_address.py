"""An interface with the same address on several nodes, as docker0 has it, leads each of them back to itself."""

from __future__ import annotations

from collections.abc import Iterator

from preflight.judge.check import Case, RunCheck
from preflight.judge.netif_usable import default_works
from preflight.judge.run.ways import first_hosts
from preflight.model.finding import Blame, Evidence, Finding, Severity


def judge(case: Case) -> Iterator[Finding]:
    """Yield an INFO per address that several nodes have, a WARN where the job's own settings failed."""
    if case.between is None:
        return
    places: dict[str, dict[str, str]] = {}
    for node in case.between.nodes:
        for offer in node.offers:
            places.setdefault(offer.address, {})[node.host] = offer.netif
    for address, owners in places.items():
        if len(owners) < 2:
            continue
        names = "/".join(sorted(set(owners.values())))
        yield Finding(
            check=CHECK.name,
            blame=CHECK.blame,
            severity=Severity.INFO if default_works(case) else Severity.WARN,
            subject=f"{names} on {first_hosts(owners)}",
            problem=f"{address} is an address of {len(owners)} nodes: whoever is told it reaches itself",
            fix="keep it out of NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME; or give each node its own",
            evidence=tuple(
                Evidence(f"{host} {netif}", address, "getifaddrs") for host, netif in list(owners.items())[:8]
            ),
        )


CHECK = RunCheck(
    name="netif-same-address",
    promise="no two nodes have the same address",
    blame=Blame.CONFIGURATION,
    reads=("netifs",),
    blind_to="nodes that took no part",
    judge=judge,
)
