from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address

from preflight.errors import UnreadableFact
from preflight.judge.check import Case, Findings, node_check
from preflight.judge.node_limits import is_contained, owner
from preflight.judge.workarounds import default_works, proven_severity
from preflight.model.facts import Gap, NameResolution, Netif, NetifKind, NodeFacts, known, known_or
from preflight.model.finding import Blame, Evidence, Severity, Unseen

NEVER_A_PATH = frozenset({NetifKind.LOOPBACK, NetifKind.CONTAINER})


@node_check("netif-usable", blame=Blame.HOST, unseen=Unseen.NOTHING, reads=("netifs", "system"))
def netif_usable(node: NodeFacts, case: Case) -> Findings:
    """At least one interface other than loopback and container bridges can carry data.

    If no interface can carry data, yields a WARN on one node and a FAIL on several nodes. If `lo` is down, yields a
    WARN, or a FAIL if the default settings failed. Yields an INFO for an interface with a comma in its name.

    Can't see: routes, firewalls, and whether the interface reaches the other nodes.
    """
    # Without a usable interface, ranks can connect only over loopback, and only on one node.
    netifs = known(node.netifs)
    if not any(is_usable(netif) for netif in netifs):
        yield netif_usable.finding(
            Severity.FAIL if len(case.nodes) > 1 else Severity.WARN,
            f"{node.host} network",
            "only the loopback interface is up and has a carrier and an address"
            + ("" if len(case.nodes) > 1 else "; loopback is enough for one node, but not for several"),
            "use `--network host` (docker) or `hostNetwork: true` (Kubernetes), or read the CNI's log"
            if is_contained(node)
            else "run `ip -br addr` to find what is missing. Then run `ip link set DEV up`, connect the cable, or "
            "request an address from DHCP",
            *(
                tuple(Evidence(netif.name, _state(netif), "/sys/class/net, getifaddrs") for netif in netifs)
                or (Evidence("interfaces", "none", "/sys/class/net"),)
            ),
            blame=owner(node),
        )
    for netif in netifs:
        if netif.kind is NetifKind.LOOPBACK and not netif.is_up:
            yield netif_usable.finding(
                Severity.WARN if default_works(case) or not case.trials else Severity.FAIL,
                f"{node.host} {netif.name}",
                "the loopback interface is down, so ranks can't connect if the host name resolves to it",
                "run `ip link set lo up`",
                Evidence(netif.name, _state(netif), "/sys/class/net"),
                blame=owner(node),
            )
        if "," in netif.name:
            yield netif_usable.finding(
                Severity.INFO,
                f"{node.host} {netif.name!r}",
                "NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME can't name an interface with a comma in its name",
                "if the job must use this interface, set it down and run `ip link set dev OLD name NEW`",
                Evidence("interface name", repr(netif.name), "/sys/class/net"),
                blame=owner(node),
            )


def is_usable(netif: Netif) -> bool:
    """Return whether a network interface can carry data between nodes, as far as its values could be read."""
    if netif.kind in NEVER_A_PATH or not netif.is_up or netif.has_carrier is False:
        return False
    return isinstance(netif.addresses, Gap) or any(map(_is_reachable, netif.addresses))


def _is_reachable(text: str) -> bool:
    address = _parse(text)
    return address is not None and not address.is_link_local and not address.is_loopback


def _parse(text: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(text.partition("%")[0])
    except ValueError:
        return None


def _state(netif: Netif) -> str:
    addresses = netif.addresses.reason if isinstance(netif.addresses, Gap) else ", ".join(netif.addresses) or "none"
    carrier = netif.has_carrier.reason if isinstance(netif.has_carrier, Gap) else str(netif.has_carrier).lower()
    return f"{netif.kind.value}, {'up' if netif.is_up else 'down'}, carrier: {carrier}, addresses: {addresses}"


@node_check(
    "hostname-loopback", blame=Blame.HOST, unseen=Unseen.NOTHING, reads=("name_resolution", "netifs", "environment")
)
def hostname_loopback(node: NodeFacts, case: Case) -> Findings:
    """The host's own name resolves to an address that other nodes can reach.

    On one node, yields an INFO if the name resolves to loopback. Yields a WARN if the name has no address, or resolves
    to the address of another host. On several nodes, yields a WARN, or a FAIL if gloo needs the address and no settings
    work.

    Can't see: to which address other nodes resolve this name.
    """
    # Gloo and c10d use the address of the host's own name. Other nodes can't reach a loopback address.
    resolution = known(node.name_resolution)
    trouble = _trouble(node, resolution)
    if trouble is None:
        return
    severity, problem = trouble
    if len(case.nodes) > 1:
        is_set = any(variable.name == "GLOO_SOCKET_IFNAME" for variable in known_or(node.environment, ()))
        severity = Severity.WARN if case.backend != "gloo" or is_set else proven_severity(case)
    else:
        problem += "; this is harmless on one node, but gloo fails on several nodes"
    netif, address = _reachable(node)
    yield hostname_loopback.finding(
        severity,
        f"{node.host} host name",
        f"the host's own name {resolution.name!r} {problem}",
        f"`export GLOO_SOCKET_IFNAME={netif if netif.replace('-', '').isalnum() else 'INTERFACE'}` in the job, or "
        f"write the line `{address} {resolution.name}` into /etc/hosts in place of the 127.* line",
        Evidence(f"addresses of {resolution.name}", ", ".join(resolution.addresses) or "none", "getaddrinfo"),
    )


def _trouble(node: NodeFacts, resolution: NameResolution) -> tuple[Severity, str] | None:
    """Return (severity on one node, text) for a problem with the host's own name.

    Return None if there is no problem.
    """
    if not resolution.addresses:
        return Severity.WARN, "does not resolve"
    first = _parse(resolution.addresses[0])
    if first is None:
        raise UnreadableFact(f"{resolution.addresses[0]!r} is not an address")
    if first.is_loopback:
        return Severity.INFO, f"resolves to {first}, a loopback address"  # stock Debian: 127.0.1.1
    own = _own_addresses(node)
    if own and first not in own:
        return Severity.WARN, f"resolves to {first}, which is not an address of this host"
    return None


def _own_addresses(node: NodeFacts) -> frozenset[IPv4Address | IPv6Address]:
    netifs = known_or(node.netifs, ())
    if any(isinstance(netif.addresses, Gap) for netif in netifs):
        return frozenset()
    texts = (text for netif in netifs for text in known_or(netif.addresses, ()))
    return frozenset(address for address in map(_parse, texts) if address is not None)


def _reachable(node: NodeFacts) -> tuple[str, str]:
    """Return (interface, address) for the first interface that other nodes may reach.

    If no interface is known, return placeholders.
    """
    for netif in known_or(node.netifs, ()):
        for text in known_or(netif.addresses, ()):
            if netif.is_up and _is_reachable(text):
                return netif.name, text
    return "INTERFACE", "ADDRESS"
