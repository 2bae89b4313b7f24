"""Gloo and c10d bind to what the host's own name resolves to; on loopback no other node reaches them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address

from preflight.judge.check import Case, NodeCheck
from preflight.judge.workaround import proven_severity
from preflight.model.facts import Gap, NameResolution, NodeFacts, known
from preflight.model.finding import Blame, Evidence, Finding, Severity


@dataclass(frozen=True, slots=True)
class Trouble:
    """What is wrong with the name, and how much that matters on one node."""

    told: str
    on_one_node: Severity


def judge(node: NodeFacts, case: Case) -> Iterator[Finding]:
    """Yield INFO or WARN on one node; on several FAIL for gloo that no variable tells its interface, else WARN."""
    resolution = known(node.name_resolution)
    trouble = _trouble(node, resolution)
    if trouble is None:
        return
    yield Finding(
        check=CHECK.name,
        blame=CHECK.blame,
        severity=_severity(node, case, trouble),
        subject=f"{node.host} host name",
        problem=f"the host's own name {resolution.name!r} {trouble.told}"
        + ("" if len(case.nodes) > 1 else "; harmless on one node, fatal for gloo on several"),
        fix=f"`export GLOO_SOCKET_IFNAME={_example(node)}` in the job, or a line "
        f"`{_address(node)} {resolution.name}` in /etc/hosts in place of the 127.* one",
        evidence=(
            Evidence(f"addresses of {resolution.name}", ", ".join(resolution.addresses) or "none", "getaddrinfo"),
        ),
    )


def _trouble(node: NodeFacts, resolution: NameResolution) -> Trouble | None:
    if not resolution.addresses:
        return Trouble("resolves to nothing", Severity.WARN)
    first = _parse(resolution.addresses[0])
    if first is None:
        return None
    if first.is_loopback:
        return Trouble(f"resolves to {first}, a loopback address", Severity.INFO)  # stock Debian: 127.0.1.1
    own = _own_addresses(node)
    if own and first not in own:
        return Trouble(f"resolves to {first}, which is no address of this host", Severity.WARN)
    return None


def _severity(node: NodeFacts, case: Case, trouble: Trouble) -> Severity:
    if len(case.nodes) < 2:
        return trouble.on_one_node
    is_told = not isinstance(node.environment, Gap) and any(v.name == "GLOO_SOCKET_IFNAME" for v in node.environment)
    return Severity.WARN if case.backend != "gloo" or is_told else proven_severity(case)


def _own_addresses(node: NodeFacts) -> frozenset[IPv4Address | IPv6Address]:
    if isinstance(node.netifs, Gap) or any(isinstance(netif.addresses, Gap) for netif in node.netifs):
        return frozenset()
    texts = [text for netif in node.netifs if not isinstance(netif.addresses, Gap) for text in netif.addresses]
    return frozenset(address for address in map(_parse, texts) if address is not None)


def _parse(text: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(text.partition("%")[0])
    except ValueError:
        return None


def _reachable(node: NodeFacts) -> tuple[str, str] | None:
    for netif in () if isinstance(node.netifs, Gap) else node.netifs:
        for text in () if isinstance(netif.addresses, Gap) else netif.addresses:
            address = _parse(text)
            if netif.is_up and address and not address.is_loopback and not address.is_link_local:
                return netif.name, text
    return None


def _example(node: NodeFacts) -> str:
    found = _reachable(node)
    return found[0] if found and found[0].replace("-", "").isalnum() else "INTERFACE"


def _address(node: NodeFacts) -> str:
    found = _reachable(node)
    return found[1] if found else "ADDRESS"


CHECK = NodeCheck(
    name="hostname-loopback",
    promise="the host's own name resolves to an address that other nodes can reach",
    blame=Blame.HOST,
    reads=("name_resolution", "netifs", "environment"),
    blind_to="what other nodes resolve this name to",
    judge=judge,
)
