"""What is not the same on all nodes of a run, and whether it must be. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from preflight.model.between import ClockOffset
from preflight.model.facts import Gap, Netif, NodeFacts
from preflight.model.units import size_text
from preflight.plan.candidates import why_unusable

CLOCK_S = 1.0  # beyond, the lines of two nodes' logs can't be put in order
NOT_READ = "not read"
OWN_BY_NODE = ("IFNAME", "NCCL_IB_HCA", "VISIBLE_DEVICES", "TOPO_FILE", "HOSTNAME", "HOSTID", "RANK", "PREFLIGHT")


class Must(Enum):
    """Whether nodes may differ in a fact."""

    EQUAL = "must be equal"
    BETTER = "should be equal"
    NOT = "may differ"


@dataclass(frozen=True, slots=True)
class Difference:
    """A fact that differs: its values, the commonest first, each with the hosts that have it."""

    what: str
    must: Must
    values: tuple[tuple[str, tuple[str, ...]], ...]
    why: str  # it matters; "" where it need not
    fix: str


@dataclass(frozen=True, slots=True)
class Fact:
    """A fact that is compared."""

    what: str
    read: Callable[[NodeFacts], str | None]  # None where it could not be read
    must: Must
    why: str = ""
    fix: str = "install the same on every node"


def differences(nodes: Sequence[NodeFacts], clocks: Sequence[ClockOffset], backend: str) -> tuple[Difference, ...]:
    """Return what differs, what must be equal first."""
    found = [*_compared(nodes, _facts(nodes, backend)), *_clocks(nodes, clocks)] if len(nodes) > 1 else []
    order = list(Must)
    return tuple(sorted(found, key=lambda each: order.index(each.must)))


def _compared(nodes: Sequence[NodeFacts], facts: Sequence[Fact]) -> Iterator[Difference]:
    for fact in facts:
        read = [(node.host, fact.read(node)) for node in nodes]
        known = {value for _, value in read if value is not None}
        if not known or len({value for _, value in read}) < 2:
            continue
        must = fact.must if len(known) > 1 else Must.NOT  # nobody is accused of what could not be read
        hosts: dict[str, list[str]] = {}
        for host, value in read:
            hosts.setdefault(NOT_READ if value is None else value, []).append(host)
        values = sorted(hosts.items(), key=lambda item: -len(item[1]))
        yield Difference(fact.what, must, tuple((value, tuple(each)) for value, each in values), fact.why, fact.fix)


def _clocks(nodes: Sequence[NodeFacts], clocks: Sequence[ClockOffset]) -> Iterator[Difference]:
    far = [clock for clock in clocks if abs(clock.offset_s) - clock.within_s > CLOCK_S]
    if far:
        values = [("0 s", (nodes[0].host,)), *[(f"{clock.offset_s:+.1f} s", (clock.host,)) for clock in far]]
        why = "lines of their logs can't be put in order, and files seem to come from the future"
        yield Difference("clock", Must.BETTER, tuple(values), why, "start chrony or systemd-timesyncd on every node")


def _facts(nodes: Sequence[NodeFacts], backend: str) -> list[Fact]:
    on_nccl = Must.EQUAL if backend == "nccl" else Must.BETTER
    facts = [
        Fact("NCCL", _nccl, on_nccl, "NCCL refuses to connect ranks of different versions"),
        Fact("torch", _torch, Must.BETTER, "ranks may run collectives in another order or with another timeout"),
        Fact("CUDA of torch", _torch_cuda, Must.BETTER, "kernels and numerics differ"),
        Fact("driver", _driver, Must.BETTER, "what NCCL can use (NVLS, fabric handles) depends on it"),
        Fact("CUDA of the driver", _driver_cuda, Must.NOT),
        Fact("GPUs", _gpus, Must.BETTER, "the slowest sets the pace, and ranks per node must fit the smallest"),
        Fact("Python", _python, Must.BETTER, "what one rank pickles another can't always load"),
        Fact("kernel", _kernel, Must.NOT),
        Fact("firmware of the adapters", _firmware, Must.NOT),
        Fact("RDMA adapters", _hcas, Must.BETTER, "a rail that one node lacks is lost to all", "`ibstat` there"),
        Fact("interfaces", _names, Must.NOT),
        Fact("/dev/shm", _shm, Must.NOT),
        Fact("memlock", _memlock, Must.BETTER, "RDMA and pinned memory fail where it is small",
             "the same `ulimit -l` (limits.conf, the unit file or docker's --ulimit) on every node"),
        Fact("nofile", _nofile, Must.NOT),
    ]  # fmt: skip
    return [*facts, *_mtus(nodes), *_variables(nodes)]


def _mtus(nodes: Sequence[NodeFacts]) -> Iterator[Fact]:
    names = {netif.name for node in nodes for netif in _usable(node)}
    for name in sorted(names):
        have = [netif for node in nodes for netif in _usable(node) if netif.name == name]
        if len(have) == len(nodes):
            why = "RDMA fails and jumbo frames are lost where the ends differ; TCP alone agrees on the smaller"
            yield Fact(
                f"MTU of {name}", _mtu_of(name), Must.BETTER, why, f"`ip link set {name} mtu N`, the same on every node"
            )


def _variables(nodes: Sequence[NodeFacts]) -> Iterator[Fact]:
    environments = [node.environment for node in nodes if not isinstance(node.environment, Gap)]
    for name in sorted({variable.name for each in environments for variable in each}):
        may = any(part in name for part in OWN_BY_NODE)
        why = "ranks that are set differently choose different protocols and hang, or one fails"
        yield Fact(
            name, _variable(name), Must.NOT if may else Must.BETTER, why, f"set {name} alike on every node, or nowhere"
        )


def _variable(name: str) -> Callable[[NodeFacts], str | None]:
    def read(node: NodeFacts) -> str | None:
        if isinstance(node.environment, Gap):
            return None
        return next((variable.value for variable in node.environment if variable.name == name), "not set")

    return read


def _mtu_of(name: str) -> Callable[[NodeFacts], str | None]:
    def read(node: NodeFacts) -> str | None:
        return next((_text(netif.mtu) for netif in _usable(node) if netif.name == name), None)

    return read


def _usable(node: NodeFacts) -> list[Netif]:
    return [] if isinstance(node.netifs, Gap) else [netif for netif in node.netifs if not why_unusable(netif)]


def _text(value: object) -> str | None:
    return None if isinstance(value, Gap) else str(value)


def _nccl(node: NodeFacts) -> str | None:
    torch = Gap("") if isinstance(node.software, Gap) else node.software.torch
    return None if isinstance(torch, Gap) else _text(torch.nccl)


def _torch(node: NodeFacts) -> str | None:
    torch = Gap("") if isinstance(node.software, Gap) else node.software.torch
    return None if isinstance(torch, Gap) else torch.version


def _torch_cuda(node: NodeFacts) -> str | None:
    torch = Gap("") if isinstance(node.software, Gap) else node.software.torch
    return None if isinstance(torch, Gap) else _text(torch.cuda)


def _python(node: NodeFacts) -> str | None:
    return None if isinstance(node.software, Gap) else node.software.python


def _driver(node: NodeFacts) -> str | None:
    return None if isinstance(node.driver, Gap) else _text(node.driver.version)


def _driver_cuda(node: NodeFacts) -> str | None:
    return None if isinstance(node.driver, Gap) else _text(node.driver.cuda)


def _gpus(node: NodeFacts) -> str | None:
    if isinstance(node.gpus, Gap):
        return None
    counts = Counter(_text(gpu.name) or "a GPU without a name" for gpu in node.gpus)
    return ", ".join(f"{count} x {name}" for name, count in sorted(counts.items())) or "none"


def _kernel(node: NodeFacts) -> str | None:
    return None if isinstance(node.system, Gap) else _text(node.system.kernel)


def _firmware(node: NodeFacts) -> str | None:
    if isinstance(node.nics, Gap) or not node.nics:
        return None
    return ", ".join(sorted({f"{_text(nic.device)} {_text(nic.firmware)}" for nic in node.nics}))


def _hcas(node: NodeFacts) -> str | None:
    if isinstance(node.hca_ports, Gap):
        return None
    ports = (
        f"{port.hca}:{port.port} {'?' if isinstance(port.state, Gap) else port.state.value}" for port in node.hca_ports
    )
    return ", ".join(sorted(ports)) or "none"


def _names(node: NodeFacts) -> str | None:
    return None if isinstance(node.netifs, Gap) else ", ".join(sorted(netif.name for netif in _usable(node))) or "none"


def _shm(node: NodeFacts) -> str | None:
    return None if isinstance(node.shm, Gap) else size_text(node.shm.size_bytes)


def _memlock(node: NodeFacts) -> str | None:
    if isinstance(node.limits, Gap):
        return None
    limit = node.limits.memlock_bytes
    return size_text(limit) if isinstance(limit, int) else limit.value


def _nofile(node: NodeFacts) -> str | None:
    if isinstance(node.limits, Gap):
        return None
    limit = node.limits.nofile
    return str(limit) if isinstance(limit, int) else limit.value
