"""Settings that take RDMA adapters from NCCL, all of them or some, and what else chooses its network."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from preflight.model.facts import Gap, HcaPort
from preflight.model.hca import PhysState, PortState
from preflight.model.trial import LeftOut, Scope, Setting
from preflight.plan.ground import Ground, Planned, unless
from preflight.plan.nccl_version import why_not_known

AUTOMATIC_GID_SINCE = (2, 21)
V2, MAPPED_IPV4 = "RoCE v2", "0000:0000:0000:0000:0000:ffff:"


def network(ground: Ground) -> Iterator[Planned]:
    """Yield sockets in place of every other network, without the plugins that may bring one, and without RDMA."""
    name, plugin = "NCCL_NET", "NCCL_NET_PLUGIN"
    reason = why_not_known(ground.version, (2, 10))
    told = "a network that is found and does not work"
    yield unless(reason, Setting(name, ((name, "Socket"),), told, ("ib", "plugin", "net"), Scope.ONE_NODE))
    reason = why_not_known(ground.version, (2, 11))
    if _set_to(ground, plugin) == "none":
        reason = "it is set to none already"
    told = "a network plugin (libnccl-net) of another version, or of another site"
    yield unless(reason, Setting(plugin, ((plugin, "none"),), told, ("plugin",), Scope.ONE_NODE))
    yield _without_rdma(ground)


def _without_rdma(ground: Ground) -> Planned:
    name = "NCCL_IB_DISABLE"
    if isinstance(ground.node.hca_ports, tuple) and not ground.node.hca_ports:
        return LeftOut(name, "there is no RDMA adapter")
    told = "InfiniBand or RoCE that is up and can't be used: memlock, device files, GIDs, a fabric without a way"
    return Setting(name, ((name, "1"),), told, ("ib", "net"), Scope.ONE_NODE)


def ports(ground: Ground) -> Iterator[Planned]:
    """Yield each set of alike usable ports where there are several, the most plausible first."""
    name = "NCCL_IB_HCA"
    if isinstance(ground.node.hca_ports, Gap):
        yield LeftOut(name, f"the ports could not be read: {ground.node.hca_ports.reason}")
        return
    usable = [port for port in ground.node.hca_ports if is_usable(port)]
    groups = _alike(usable)
    if len(groups) == 1 and len(usable) == 2:
        groups = [[port] for port in usable]
    if len(groups) < 2:
        if ground.node.hca_ports:
            yield LeftOut(name, _why_one_group(len(usable)))
        return
    for group in groups:
        listed = ",".join(f"{port.hca}:{port.port}" for port in group)
        told = f"the other RDMA ports: these {len(group)} are alike" if len(group) > 1 else "the other RDMA ports"
        yield Setting(f"hca {listed}", ((name, f"={listed}"),), told, ("ib",), Scope.ONE_NODE, choice="hca")


def is_usable(port: HcaPort) -> bool:
    """Tell whether NCCL takes a port and data may pass it; what is not known does not exclude it."""
    active = isinstance(port.state, Gap) or port.state is PortState.ACTIVE
    linked = isinstance(port.phys_state, Gap) or port.phys_state is PhysState.LINK_UP
    return active and linked and port.link_layer != "Unspecified"


def _alike(usable: Sequence[HcaPort]) -> list[list[HcaPort]]:
    """Return the ports by link layer and rate: InfiniBand before RoCE, the fastest first, as compute fabrics are."""
    groups: dict[tuple[bool, float], list[HcaPort]] = {}
    for port in usable:
        rate = 0.0 if isinstance(port.rate_gbit_s, Gap) else port.rate_gbit_s
        groups.setdefault((port.link_layer == "Ethernet", -rate), []).append(port)
    return [groups[key] for key in sorted(groups)]


def _why_one_group(usable: int) -> str:
    if not usable:
        return "no port is active"
    told = "one port is usable" if usable == 1 else f"the {usable} usable ports are alike"
    return f"{told}: NCCL takes {'it' if usable == 1 else 'all of them'} anyway"


def gid(ground: Ground) -> Iterator[Planned]:
    """Yield the RoCE v2 address of the ports where NCCL is too old to find it."""
    name = "NCCL_IB_GID_INDEX"
    if isinstance(ground.node.hca_ports, Gap):
        yield LeftOut(name, f"the ports could not be read: {ground.node.hca_ports.reason}")
        return
    roce = [port for port in ground.node.hca_ports if port.link_layer == "Ethernet" and is_usable(port)]
    if not roce:
        return
    if ground.version is None or ground.version >= AUTOMATIC_GID_SINCE:
        told = "NCCL's version is not known, and from 2.21" if ground.version is None else "from NCCL 2.21"
        yield LeftOut(name, f"{told} NCCL finds the GID itself, and setting it gets in the way")
        return
    indices = {_v2_index(port) for port in roce}
    index = next(iter(indices)) if len(indices) == 1 else None
    if index is None:
        yield LeftOut(name, "the ports share no index of a RoCE v2 GID with an IPv4 address")
        return
    told = "a GID that is not RoCE v2, which NCCL before 2.21 takes by itself"
    yield Setting(name, ((name, str(index)),), told, ("ib",), Scope.ONE_NODE)


def _v2_index(port: HcaPort) -> int | None:
    gids = port.gids if isinstance(port.gids, tuple) else ()
    return next((each.gid_index for each in gids if each.type == V2 and each.gid.startswith(MAPPED_IPV4)), None)


def _set_to(ground: Ground, name: str) -> str:
    environment = ground.node.environment if isinstance(ground.node.environment, tuple) else ()
    return next((variable.value for variable in environment if variable.name == name), "")
