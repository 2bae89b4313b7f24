"""Settings that turn off RDMA adapters in NCCL, and settings that send all data through one RDMA port."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from preflight.model.facts import Gap, HcaPort, NodeFacts, inherited_value
from preflight.model.gap import known_or
from preflight.model.hca import ETHERNET, PhysState, PortState
from preflight.model.nccl_variables import BY_NAME
from preflight.model.profile import Profile
from preflight.model.trial import Candidate, LeftOut, Scope, Setting
from preflight.search.settings.node_view import NodeView, Planned, setting, unless, why_not_known

AUTOMATIC_GID_SINCE = (2, 21)
HERE = Scope.ONE_NODE
NETWORK_ONLY = (("NCCL_NET", "IB"), ("NCCL_NVLS_ENABLE", "0"), ("NCCL_P2P_DISABLE", "1"), ("NCCL_SHM_DISABLE", "1"))
V2, MAPPED_IPV4 = "RoCE v2", "0000:0000:0000:0000:0000:ffff:"


def network(view: NodeView) -> Iterator[Planned]:
    """Yield the settings that make NCCL use only sockets, without network plugins and RDMA."""
    network, plugin = "NCCL_NET", "NCCL_NET_PLUGIN"
    yield unless(why_not_known(view.version, network), setting(network, "Socket", HERE))
    is_off = inherited_value(view.node, plugin) == "none"
    reason = "it is set to none already" if is_off else why_not_known(view.version, plugin)
    yield unless(reason, setting(plugin, "none", HERE))
    reason = "there is no RDMA adapter" if view.node.hca_ports == () else ""
    yield unless(reason, setting("NCCL_IB_DISABLE", "1", HERE))


def ports(view: NodeView) -> Iterator[Planned]:
    """Yield a setting for each group of similar usable ports, the most plausible group first.

    If no choice is possible, yield the reason.
    """
    # If there is only one group, its ports need no setting. But if this group has exactly two ports, each port gets a
    # setting.
    name = "NCCL_IB_HCA"
    if isinstance(view.node.hca_ports, Gap):
        yield LeftOut(name, f"the ports could not be read: {view.node.hca_ports.reason}")
        return
    usable = [port for port in view.node.hca_ports if is_usable(port)]
    groups = _alike(usable)
    if len(groups) == 1 and len(usable) == 2:
        groups = [[port] for port in usable]
    if len(groups) < 2:
        if view.node.hca_ports:
            alike = f"the {len(usable)} usable ports are alike, and NCCL uses all of them by default"
            few = ("no port is active", "only one port is usable, and NCCL uses it by default", alike)
            yield LeftOut(name, few[min(len(usable), 2)])
        return
    for group in groups:
        listed = ",".join(f"{port.hca}:{port.port}" for port in group)
        yield Setting(f"hca {listed}", ((name, f"={listed}"),), BY_NAME[name].families, HERE, choice="hca")


def is_usable(port: HcaPort) -> bool:
    """Return whether NCCL can use a port, because the port is active and has a link.

    An unknown state counts as usable.
    """
    active = isinstance(port.state, Gap) or port.state is PortState.ACTIVE
    linked = isinstance(port.phys_state, Gap) or port.phys_state is PhysState.LINK_UP
    return active and linked and port.link_layer != "Unspecified"


def usable_ports(node: NodeFacts) -> list[HcaPort]:
    """Return the RDMA ports of a node that NCCL can use."""
    return [port for port in known_or(node.hca_ports, ()) if is_usable(port)]


def _alike(usable: Sequence[HcaPort]) -> list[list[HcaPort]]:
    """Return the ports in groups with the same link layer and rate.

    InfiniBand comes before RoCE, and faster groups come first. The compute fabric is usually InfiniBand, and the
    fastest network.
    """
    groups: dict[tuple[bool, float], list[HcaPort]] = {}
    for port in usable:
        groups.setdefault((port.link_layer == ETHERNET, -known_or(port.rate_gbit_s, 0.0)), []).append(port)
    return [groups[key] for key in sorted(groups)]


def gid(view: NodeView) -> Iterator[Planned]:
    """Yield the setting for the RoCE v2 GID index of all ports, or the reason why the setting is left out.

    Without RoCE ports, yield nothing.
    """
    # The setting is needed only if this NCCL version can't find the index itself.
    name = "NCCL_IB_GID_INDEX"
    if isinstance(view.node.hca_ports, Gap):
        yield LeftOut(name, f"the ports could not be read: {view.node.hca_ports.reason}")
        return
    roce = [port for port in view.node.hca_ports if port.link_layer == ETHERNET and is_usable(port)]
    if not roce:
        return
    if view.version is None or view.version >= AUTOMATIC_GID_SINCE:
        unknown = "NCCL's version is not known; " if view.version is None else ""
        yield LeftOut(name, f"{unknown}NCCL 2.21 and later choose the GID; this variable turns this choice off")
        return
    indices = {v2_index(port) for port in roce}
    is_shared = len(indices) == 1 and None not in indices
    reason = "" if is_shared else "the ports share no index of a RoCE v2 GID with an IPv4 address"
    yield unless(reason, setting(name, str(indices.pop()), HERE))


def v2_index(port: HcaPort) -> int | None:
    """Return the index of the RoCE v2 GID with an IPv4 address in the port's table, or None if there is no such GID."""
    gids = known_or(port.gids, ())
    return next((each.gid_index for each in gids if each.type == V2 and each.gid.startswith(MAPPED_IPV4)), None)


def rails_to_try(node: NodeFacts, profile: Profile, dialect: str) -> tuple[HcaPort, ...]:
    """Return the RDMA ports to test one at a time.

    The result is () if the node has only one usable port, or in the `quick` profile.
    """
    ports = tuple(usable_ports(node))
    return ports if len(ports) > 1 and dialect == "nccl" and profile.effort.for_speed else ()


def rail_candidates(ports: tuple[HcaPort, ...]) -> Iterator[Candidate]:
    """Yield a configuration for each port. The configuration sends all data of the node through this port."""
    # P2P, shared memory and NVLS are off, so NCCL has only the network between the GPUs of one node.
    for port in ports:
        place = f"{port.hca}:{port.port}"
        env = tuple(sorted((*NETWORK_ONLY, ("NCCL_IB_HCA", f"={place}"))))
        yield Candidate(f"rail {place}", env, "what this port carries alone", Scope.ONE_NODE)
