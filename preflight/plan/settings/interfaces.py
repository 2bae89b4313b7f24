"""Settings that choose the network interface and the family of its addresses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from preflight.model.facts import Gap, Netif, NetifKind
from preflight.model.trial import LeftOut, Scope, Setting
from preflight.plan.candidates import netif_candidate, netif_candidate_name, why_unusable
from preflight.plan.ground import Ground, Planned, unless

# How likely an interface leads to other nodes, by what stands behind it.
LIKELY = (
    NetifKind.PHYSICAL, NetifKind.BOND, NetifKind.VLAN, NetifKind.IPOIB, NetifKind.VETH, NetifKind.WIFI,
    NetifKind.VIRTUAL, NetifKind.BRIDGE, NetifKind.TUNNEL, NetifKind.CONTAINER, NetifKind.LOOPBACK,
)  # fmt: skip


def interfaces(ground: Ground) -> Iterator[Planned]:
    """Yield each usable interface, the most plausible first."""
    if isinstance(ground.node.netifs, Gap):
        yield LeftOut("NCCL_SOCKET_IFNAME", f"the interfaces could not be read: {ground.node.netifs.reason}")
        return
    for netif in sorted(ground.node.netifs, key=plausibility):
        reason = why_unusable(netif)
        name = netif_candidate_name(netif.name)
        if reason:
            yield LeftOut(name, reason)
            continue
        told = "another interface that NCCL would take by itself and that leads nowhere"
        # NCCL reads its own variable only: what was not tried is not recommended.
        env = tuple(pair for pair in netif_candidate(netif).env if pair[0].startswith("NCCL_"))
        yield Setting(name, env, told, ("socket",), Scope.ONE_NODE, choice="netif")


def plausibility(netif: Netif) -> tuple[int, int, int, int, int]:
    """Return a key that puts the interface first that most likely is the site's: it has the way out, IPv4, speed."""
    gateways = 0 if isinstance(netif.gateways, tuple) and netif.gateways else 1
    kind = LIKELY.index(netif.kind)
    ipv4 = 0 if isinstance(netif.addresses, Gap) or _families(netif)[0] else 1
    speed = 0 if isinstance(netif.speed_mbit_s, Gap) else netif.speed_mbit_s
    return gateways, kind, ipv4, -speed, netif.index


def family(ground: Ground) -> Iterator[Planned]:
    """Yield IPv4 only where there are IPv6 addresses that NCCL may take."""
    name = "NCCL_SOCKET_FAMILY"
    if isinstance(ground.node.netifs, Gap):
        yield LeftOut(name, f"the addresses could not be read: {ground.node.netifs.reason}")
        return
    usable = [netif for netif in ground.node.netifs if not why_unusable(netif)]
    reason = _why_no_choice(usable)
    told = "an IPv6 address that answers nobody"
    yield unless(reason, Setting(name, ((name, "AF_INET"),), told, ("socket",), Scope.ONE_NODE))


def _why_no_choice(usable: Sequence[Netif]) -> str:
    if any(isinstance(netif.addresses, Gap) for netif in usable):
        return ""
    found = [_families(netif) for netif in usable]
    if not any(four for four, _ in found):
        return "no usable interface has an IPv4 address"
    return "" if any(six for _, six in found) else "no usable interface has an IPv6 address"


def _families(netif: Netif) -> tuple[bool, bool]:
    """Return whether an interface has IPv4 and IPv6 addresses; none where they are not known."""
    addresses = netif.addresses if isinstance(netif.addresses, tuple) else ()
    return any(":" not in each for each in addresses), any(":" in each for each in addresses)
