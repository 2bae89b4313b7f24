"""Without a network interface that is up and has an address, ranks meet on loopback, and on one node only."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import ip_address

from preflight.judge.check import Case, NodeCheck
from preflight.judge.hardware import is_contained, owner
from preflight.judge.workaround import default_trial, works
from preflight.model.facts import Gap, Netif, NetifKind, NodeFacts, known
from preflight.model.finding import Blame, Evidence, Finding, Severity

NEVER_A_PATH = frozenset({NetifKind.LOOPBACK, NetifKind.CONTAINER})


def judge(node: NodeFacts, case: Case) -> Iterator[Finding]:
    """Yield a WARN on one node and a FAIL on several where no interface can carry data; what `lo` down broke."""
    netifs = known(node.netifs)
    if not any(is_usable(netif) for netif in netifs):
        yield Finding(
            check=CHECK.name,
            blame=owner(node),
            severity=Severity.FAIL if len(case.nodes) > 1 else Severity.WARN,
            subject=f"{node.host} network",
            problem="no interface but loopback is up with carrier and an address"
            + ("" if len(case.nodes) > 1 else "; one node can do with loopback, several can't"),
            fix="docker: `--network host`; Kubernetes: `hostNetwork: true`, or the CNI's own log"
            if is_contained(node)
            else "`ip -br addr` shows what is missing: `ip link set DEV up`, a cable, or an address from DHCP",
            evidence=tuple(Evidence(netif.name, _state(netif), "/sys/class/net, getifaddrs") for netif in netifs)
            or (Evidence("interfaces", "none", "/sys/class/net"),),
        )
    for netif in netifs:
        if netif.kind is NetifKind.LOOPBACK and not netif.is_up:
            yield Finding(
                check=CHECK.name,
                blame=owner(node),
                severity=Severity.WARN if default_works(case) or not case.trials else Severity.FAIL,
                subject=f"{node.host} {netif.name}",
                problem="the loopback interface is down: ranks of one node whose name resolves to it can't meet",
                fix="`ip link set lo up`",
                evidence=(Evidence(netif.name, _state(netif), "/sys/class/net"),),
            )
        if "," in netif.name:
            yield Finding(
                check=CHECK.name,
                blame=owner(node),
                severity=Severity.INFO,
                subject=f"{node.host} {netif.name!r}",
                problem="a comma in an interface's name can't be written in NCCL_SOCKET_IFNAME or GLOO_SOCKET_IFNAME",
                fix="`ip link set dev OLD name NEW` while it is down, if the job is to use it",
                evidence=(Evidence("name", repr(netif.name), "/sys/class/net"),),
            )


def default_works(case: Case) -> bool:
    """Tell whether the job's own settings worked in this run."""
    default = default_trial(case.trials)
    return default is not None and works(default)


def is_usable(netif: Netif) -> bool:
    """Tell whether an interface may carry data between nodes; what could not be read is no reason against it."""
    if netif.kind in NEVER_A_PATH or not netif.is_up or netif.has_carrier is False:
        return False
    return isinstance(netif.addresses, Gap) or any(_routes(address) for address in netif.addresses)


def _routes(text: str) -> bool:
    try:
        address = ip_address(text.partition("%")[0])
    except ValueError:
        return False
    return not address.is_link_local and not address.is_loopback


def _state(netif: Netif) -> str:
    addresses = netif.addresses.reason if isinstance(netif.addresses, Gap) else ", ".join(netif.addresses) or "none"
    carrier = netif.has_carrier.reason if isinstance(netif.has_carrier, Gap) else str(netif.has_carrier).lower()
    return f"{netif.kind.value}, {'up' if netif.is_up else 'down'}, carrier: {carrier}, addresses: {addresses}"


CHECK = NodeCheck(
    name="netif-usable",
    promise="at least one interface other than loopback and container bridges can carry data",
    blame=Blame.HOST,
    reads=("netifs", "system"),
    blind_to="routes, firewalls and whether the other nodes are reached through it",
    judge=judge,
)
