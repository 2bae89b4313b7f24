"""Settings that choose the network interface, and IPv4 or IPv6."""

from __future__ import annotations

from collections.abc import Iterator

from preflight.model.facts import Gap, Netif, NetifKind
from preflight.model.gap import known_or
from preflight.model.trial import LeftOut, Scope, Setting
from preflight.search.settings.candidates import netif_candidate, netif_candidate_name, why_unusable
from preflight.search.settings.node_view import NodeView, Planned, setting, unless

# How likely an interface leads to other nodes, by what stands behind it.
LIKELY = (
    NetifKind.PHYSICAL, NetifKind.BOND, NetifKind.VLAN, NetifKind.IPOIB, NetifKind.VETH, NetifKind.WIFI,
    NetifKind.VIRTUAL, NetifKind.BRIDGE, NetifKind.TUNNEL, NetifKind.CONTAINER, NetifKind.LOOPBACK,
)  # fmt: skip


def interfaces(view: NodeView) -> Iterator[Planned]:
    """Yield a setting for each usable interface, the most plausible interface first."""
    if isinstance(view.node.netifs, Gap):
        yield LeftOut("NCCL_SOCKET_IFNAME", f"the interfaces could not be read: {view.node.netifs.reason}")
        return
    for netif in sorted(view.node.netifs, key=plausibility):
        # NCCL reads its own variable only: what was not tried is not recommended.
        env = tuple(pair for pair in netif_candidate(netif).env if pair[0].startswith("NCCL_"))
        name = netif_candidate_name(netif.name)
        yield unless(why_unusable(netif), Setting(name, env, ("socket",), Scope.ONE_NODE, choice="netif"))


def plausibility(netif: Netif) -> tuple[int, int, int, int, int]:
    """Return a sort key for `netif`. Interfaces with a default route, IPv4 and a high speed come first."""
    gateways = 0 if known_or(netif.gateways, ()) else 1
    kind = LIKELY.index(netif.kind)
    ipv4 = 0 if isinstance(netif.addresses, Gap) or _families(netif)[0] else 1
    return gateways, kind, ipv4, -known_or(netif.speed_mbit_s, 0), netif.index


def family(view: NodeView) -> Iterator[Planned]:
    """Yield the setting that limits NCCL to IPv4, if the node has IPv4 and IPv6 addresses."""
    name = "NCCL_SOCKET_FAMILY"
    if isinstance(view.node.netifs, Gap):
        yield LeftOut(name, f"the addresses could not be read: {view.node.netifs.reason}")
        return
    usable = [netif for netif in view.node.netifs if not why_unusable(netif)]
    has_ipv4, has_ipv6 = (any(each) for each in zip((False, False), *map(_families, usable), strict=True))
    missing = "" if has_ipv4 and has_ipv6 else ("IPv6" if has_ipv4 else "IPv4")
    is_known = not any(isinstance(netif.addresses, Gap) for netif in usable)
    reason = f"no usable interface has an {missing} address" if missing and is_known else ""
    yield unless(reason, setting(name, "AF_INET", Scope.ONE_NODE))


def _families(netif: Netif) -> tuple[bool, bool]:
    """Return (whether the interface has IPv4 addresses, whether the interface has IPv6 addresses).

    If the addresses are not known, both values are False.
    """
    addresses = known_or(netif.addresses, ())
    return any(":" not in each for each in addresses), any(":" in each for each in addresses)
