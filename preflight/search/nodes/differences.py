"""Find values that differ between the nodes of a run, such as versions. The functions do no I/O."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial

from preflight.model.facts import Gap, HcaPort, Limit, Netif, NodeFacts, inherited_value
from preflight.model.gap import known_or
from preflight.model.hca import ETHERNET, Gid, PortState, TrafficClasses
from preflight.model.network_survey import ClockOffset
from preflight.model.units import size_text
from preflight.search.settings.candidates import why_unusable
from preflight.search.settings.rdma import MAPPED_IPV4, v2_index

CLOCK_S = 1.0  # beyond, the lines of two nodes' logs can't be put in order
NOT_READ = "not read"
GID_INDEX = "NCCL_IB_GID_INDEX"
MOST_DIGITS = 3
UNREAD_ECN = Gap("not compared, because some nodes do not show this value")
OWN_BY_NODE = ("IFNAME", "NCCL_IB_HCA", "VISIBLE_DEVICES", "TOPO_FILE", "HOSTNAME", "HOSTID", "RANK", "PREFLIGHT")


class Must(Enum):
    """How strictly a value must be equal on all nodes."""

    EQUAL = "must be equal"
    BETTER = "should be equal"
    NOT = "may differ"


@dataclass(frozen=True, slots=True)
class Difference:
    """A value that differs between nodes. `values` has each value and its hosts, the most common value first."""

    what: str
    must: Must
    values: tuple[tuple[str, tuple[str, ...]], ...]
    why: str  # why it matters; "" if it need not
    fix: str


@dataclass(frozen=True, slots=True)
class Fact:
    """A value to compare between nodes: how to read the value, and whether it must be equal."""

    what: str
    read: Callable[[NodeFacts], str | None]  # None if it could not be read
    must: Must
    why: str = ""
    fix: str = "install the same on every node"


def differences(nodes: Sequence[NodeFacts], clocks: Sequence[ClockOffset], backend: str) -> tuple[Difference, ...]:
    """Return the values that differ between `nodes`. Values that must be equal come first."""
    # `clocks` has the offsets of the nodes' clocks, which are compared too. `backend` decides which values must be
    # equal.
    found = [*_compared(nodes, _facts(nodes, backend)), *_clocks(nodes, clocks)] if len(nodes) > 1 else []
    order = list(Must)
    return tuple(sorted(found, key=lambda each: order.index(each.must)))


def _compared(nodes: Sequence[NodeFacts], facts: Sequence[Fact]) -> Iterator[Difference]:
    for fact in facts:
        read = [(node.host, fact.read(node)) for node in nodes]
        known = {value for _, value in read if value is not None}
        if not known or len({value for _, value in read}) < 2:
            continue
        must = fact.must if len(known) > 1 else Must.NOT  # a value that could not be read is no difference
        hosts = defaultdict[str, list[str]](list)
        for host, value in read:
            hosts[NOT_READ if value is None else value].append(host)
        values = sorted(hosts.items(), key=lambda item: -len(item[1]))
        yield Difference(fact.what, must, tuple((value, tuple(each)) for value, each in values), fact.why, fact.fix)


def _clocks(nodes: Sequence[NodeFacts], clocks: Sequence[ClockOffset]) -> Iterator[Difference]:
    far = [clock for clock in clocks if abs(clock.offset_s) - clock.within_s > CLOCK_S]
    if far:
        values = [("0 s", (nodes[0].host,)), *[(f"{clock.offset_s:+.1f} s", (clock.host,)) for clock in far]]
        why = "lines of their logs can't be ordered, and files may have a time in the future"
        yield Difference("clock", Must.BETTER, tuple(values), why, "start chrony or systemd-timesyncd on every node")


def _facts(nodes: Sequence[NodeFacts], backend: str) -> list[Fact]:
    on_nccl, of_nccl = (Must.EQUAL, Must.BETTER) if backend == "nccl" else (Must.BETTER, Must.NOT)
    return [
        Fact("NCCL", _at("software", "torch", "nccl"), on_nccl, "NCCL refuses to connect ranks of different versions"),
        Fact("network plugin", _plugins, of_nccl, "nodes with different networks can't connect, and hang without "
             "an error", "the same libnccl-net.so on every node, or NCCL_NET_PLUGIN=none on all"),
        Fact("torch", _at("software", "torch", "version"), Must.BETTER,
             "ranks may run collectives in another order or with another timeout"),
        Fact("CUDA of torch", _at("software", "torch", "cuda"), Must.BETTER, "kernels and numerics differ"),
        Fact("driver", _at("driver", "version"), Must.BETTER, "what NCCL can use (NVLS, fabric handles) depends on it"),
        Fact("CUDA of the driver", _at("driver", "cuda"), Must.NOT),
        Fact("GPUs", _gpus, Must.BETTER, "the slowest GPU limits the speed, and ranks per node must fit the "
        "smallest node"),
        Fact("Python", _at("software", "python"), Must.BETTER, "a rank can't always load what another Python version "
        "pickled"),
        Fact("kernel", _at("system", "kernel"), Must.NOT),
        Fact("firmware of the adapters", _firmware, Must.NOT),
        Fact("RDMA adapters", _hcas, Must.BETTER, "a rail that one node lacks can't be used by any node", "`ibstat` "
        "there"),
        _classes_of(nodes, of_nccl, "under load, one end loses packets that the other end holds back", "configure "
        "PFC, ECN and the priority of each DSCP alike (`mlnx_qos -i INTERFACE` shows them)"),
        _gids(nodes),
        Fact("interfaces", _names, Must.NOT),
        Fact("/dev/shm", _at("shm", "size_bytes", text=_size), Must.NOT),
        Fact("memlock", _at("limits", "memlock_bytes", text=_size), Must.BETTER,
             "RDMA and pinned memory fail if it is small",
             "the same `ulimit -l` (limits.conf, the unit file or docker's --ulimit) on every node"),
        Fact("nofile", _at("limits", "nofile"), Must.NOT),
        *_mtus(nodes), *_variables(nodes),
    ]  # fmt: skip


def _mtus(nodes: Sequence[NodeFacts]) -> Iterator[Fact]:
    names = set.intersection(*({netif.name for netif in _usable(node)} for node in nodes))
    why = "if the ends differ, RDMA fails and jumbo frames are lost; only TCP uses the smaller MTU"
    for name in sorted(names):
        fix = f"`ip link set {name} mtu N`, the same on every node"
        yield Fact(f"MTU of {name}", partial(_mtu_of, name), Must.BETTER, why, fix)


def _variables(nodes: Sequence[NodeFacts]) -> Iterator[Fact]:
    why = "ranks with different settings choose different protocols, so they hang or one fails"
    for name in sorted({variable.name for node in nodes for variable in known_or(node.environment, ())}):
        must = Must.NOT if any(part in name for part in OWN_BY_NODE) else Must.BETTER
        yield Fact(name, partial(_variable, name), must, why, f"set {name} alike on every node, or nowhere")


def _variable(name: str, node: NodeFacts) -> str | None:
    if isinstance(node.environment, Gap):
        return None
    value = inherited_value(node, name)
    return "not set" if value is None else value


def _mtu_of(name: str, node: NodeFacts) -> str | None:
    return next((_text(netif.mtu) for netif in _usable(node) if netif.name == name), None)


def _usable(node: NodeFacts) -> list[Netif]:
    return [netif for netif in known_or(node.netifs, ()) if not why_unusable(netif)]


def _text(value: object) -> str | None:
    return None if isinstance(value, Gap) else str(value.value if isinstance(value, Limit) else value)


def _size(value: object) -> str | None:
    return size_text(value) if isinstance(value, int) else _text(value)


def _at(*names: str, text: Callable[[object], str | None] = _text) -> Callable[[NodeFacts], str | None]:
    """Return a function that reads one fact from a NodeFacts object.

    `names` are the attribute names that lead to the fact. If a value on this path is missing (a Gap), the returned
    function returns None.
    """

    def read(node: NodeFacts) -> str | None:
        value: object = node
        for name in names:
            value = value if isinstance(value, Gap) else getattr(value, name)
        return text(value)

    return read


def _gpus(node: NodeFacts) -> str | None:
    if isinstance(node.gpus, Gap):
        return None
    counts = Counter(known_or(gpu.name, "a GPU without a name") or "a GPU without a name" for gpu in node.gpus)
    return ", ".join(f"{count} x {name}" for name, count in sorted(counts.items())) or "none"


def _firmware(node: NodeFacts) -> str | None:
    adapters = known_or(node.nics, ())
    return ", ".join(sorted({f"{_text(nic.device)} {_text(nic.firmware)}" for nic in adapters})) or None


def _hcas(node: NodeFacts) -> str | None:
    if isinstance(node.hca_ports, Gap):
        return None
    states = ((port, "?" if isinstance(port.state, Gap) else port.state.value) for port in node.hca_ports)
    return ", ".join(sorted(f"{port.hca}:{port.port} {state}" for port, state in states)) or "none"


def _plugins(node: NodeFacts) -> str | None:
    """Return the file names of NCCL's network plugins.

    Return None if the plugins are unknown, or if an NCCL configuration file names other plugins.
    """
    files = known_or(node.nccl_conf, ())
    if isinstance(node.software, Gap) or any(entry.name == "NCCL_NET_PLUGIN" for entry in files):
        return None
    paths = node.software.net_plugins
    return None if isinstance(paths, Gap) else ", ".join(path.rpartition("/")[2] for path in paths) or "none"


def _gids(nodes: Sequence[NodeFacts]) -> Fact:
    """Return a fact for comparing the GIDs of active RoCE ports between nodes.

    If a GID index is set, the fact is the type of the GIDs at this index, such as RoCE v2 with IPv4. Otherwise, the
    fact is the index of the IPv4 GID for RoCE v2. If no index is set, NCCL 2.21 and later find the GID automatically.
    """
    index = next((value for node in nodes if (value := inherited_value(node, GID_INDEX))), "")
    if not (index.isdecimal() and len(index) <= MOST_DIGITS):
        return Fact("index of RoCE v2's IPv4 address", _index_of_ipv4, Must.NOT)
    uses_all = not any(inherited_value(node, "NCCL_IB_HCA") for node in nodes)  # else some ports are not NCCL's
    return Fact(
        f"GID {index} of RoCE", partial(_kind_at, int(index)), Must.BETTER if uses_all else Must.NOT,
        f"{GID_INDEX}={index} names another kind of address there, so connections fail",
        f"leave {GID_INDEX} unset (NCCL 2.21 and later find the address), or give every port its address at {index}",
    )  # fmt: skip


def _index_of_ipv4(node: NodeFacts) -> str | None:
    found = {"none" if (index := v2_index(port)) is None else str(index) for port in _roce_ports(node)}
    return ", ".join(sorted(found)) or None


def _kind_at(index: int, node: NodeFacts) -> str | None:
    tables = [known_or(port.gids, ()) for port in _roce_ports(node)]
    at = [next((gid for gid in gids if gid.gid_index == index), None) for gids in tables]
    return ", ".join(sorted({"empty" if gid is None else _kind(gid) for gid in at})) or None


def _kind(gid: Gid) -> str:
    return f"{_text(gid.type) or 'unknown'} {'IPv4' if gid.gid.startswith(MAPPED_IPV4) else 'IPv6'}"


def _roce_ports(node: NodeFacts) -> list[HcaPort]:
    ports = known_or(node.hca_ports, ())
    is_active = [port for port in ports if port.link_layer == ETHERNET and port.state is PortState.ACTIVE]
    return [port for port in is_active if not isinstance(port.gids, Gap)]


def _classes_of(nodes: Sequence[NodeFacts], must: Must, why: str, fix: str) -> Fact:
    """Return a fact for comparing the traffic classes of active RoCE ports between nodes.

    The fact includes ECN if the driver of every node shows the ECN settings.
    """
    all_classes = [each for node in nodes for each in _classes(node)]
    has_ecn = not any(isinstance(each.ecn_priorities, Gap) for each in all_classes)
    return Fact("traffic classes of RoCE", partial(_classes_text, has_ecn), must, why, fix)


def _classes_text(has_ecn: bool, node: NodeFacts) -> str | None:
    own = _classes(node) if has_ecn else [replace(each, ecn_priorities=UNREAD_ECN) for each in _classes(node)]
    return "; ".join(sorted({each.text for each in own})) or None


def _classes(node: NodeFacts) -> list[TrafficClasses]:
    return [each for port in _roce_ports(node) for each in known_or(port.traffic_classes, ())]


def _names(node: NodeFacts) -> str | None:
    return None if isinstance(node.netifs, Gap) else ", ".join(sorted(netif.name for netif in _usable(node))) or "none"
