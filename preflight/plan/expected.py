"""What the links that are there should carry: limit, healthy range and the formula in words. No list of machines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from preflight.errors import UnreadableFact
from preflight.model.collective import Collective
from preflight.model.facts import Gpu, HcaPort, NodeFacts, known
from preflight.model.hca import PortState
from preflight.model.links import Links, Reach
from preflight.model.units import size_text
from preflight.plan.seats import NVLINK, Seats, islands, seats_of

LARGE_BYTES = 1 << 30
NVLINK_PATH, NVLS_PATH, PCIE_PATH, NIC_PATH = "nvlink", "nvls", "pcie", "nic"


@dataclass(frozen=True, slots=True)
class Expected:
    """A healthy busbw at one message size, and how it was worked out."""

    what: str  # "all_reduce", or "network" for the sum of a node's ports
    size_bytes: int
    path: str  # nvlink, nvls, pcie, nic
    limit_gb_s: float  # what the slowest link carries one way; NVLS may exceed it, since it reduces in the switch
    low_gb_s: float
    high_gb_s: float
    formula: str


def expected_busbw(
    links: Links, node: NodeFacts, gpus: Sequence[int], collective: Collective, size_bytes: int
) -> Expected:
    """Return what a collective over these GPUs of one node should reach; UnreadableFact where a link isn't known."""
    if len(gpus) < 2:
        raise UnreadableFact("a single GPU has no link to another one in use")
    seats = seats_of(node)
    chosen = [gpu for gpu in known(node.gpus) if gpu.nvml_index in gpus]
    if _is_ring(seats, gpus):
        limit, words = _nvlink_limit(links, seats, chosen)
        path = NVLS_PATH if collective is Collective.ALL_REDUCE and _has_nvls(links, seats, chosen) else NVLINK_PATH
    else:
        limit, words = _pcie_limit(links, chosen)
        path = PCIE_PATH
    return _expected(links, path, limit, len(gpus), size_bytes, words, collective)


def expected_over(
    links: Links,
    node: NodeFacts,
    gpus: Sequence[int],
    collective: Collective,
    size_bytes: int,
    transport: Sequence[str],
) -> Expected:
    """Return what the ways that were really taken should give; `transport` as a trial tells it, empty where unknown.

    UnreadableFact where ranks of one node met over the network: no link between the GPUs says how fast that is.
    """
    if any(" via NET/" in way for way in transport):
        raise UnreadableFact("ranks of this node met over the network, not over the links between their GPUs")
    promised = expected_busbw(links, node, gpus, collective, size_bytes)
    chosen = [gpu for gpu in known(node.gpus) if gpu.nvml_index in gpus]
    if any(" via SHM" in way for way in transport) and promised.path != PCIE_PATH:
        limit, words = _pcie_limit(links, chosen)
        return _expected(links, PCIE_PATH, limit, len(gpus), size_bytes, f"through host memory: {words}", collective)
    if promised.path == NVLS_PATH and transport and "NVLS" not in transport:
        limit, words = _nvlink_limit(links, seats_of(node), chosen)
        return _expected(links, NVLINK_PATH, limit, len(gpus), size_bytes, words, collective)
    return promised


def expected_network(links: Links, ports: Sequence[HcaPort]) -> Expected:
    """Return what a node's active ports carry together, with large messages."""
    active = [port for port in ports if port.state is PortState.ACTIVE]
    if not active:
        raise UnreadableFact("no RDMA port is active")
    total = sum(known(port.rate_gbit_s) for port in active)
    rates = " + ".join(f"{known(port.rate_gbit_s):g}" for port in active)
    reach = _reach(links, NIC_PATH)
    limit = total / 8
    words = f"{rates} Gbit/s of {len(active)} active ports / 8 = {limit:g} GB/s"
    return Expected(
        "network", LARGE_BYTES, NIC_PATH, limit, reach.low * limit, reach.high * limit, f"{words}; {_share(reach)}"
    )


def nvlink_gb_s(links: Links, generation: str, compute_capability: str) -> float:
    """Return the rate of one NVLink one way; UnreadableFact where no row tells."""
    rows = [row for row in links.nvlink if row.generation == generation]
    exact = [row for row in rows if row.compute_capability == compute_capability]
    plain = [row for row in rows if not row.compute_capability]
    if not exact and not plain:
        raise UnreadableFact(f"the rate of NVLink {generation} is not in links.toml")
    return (exact or plain)[0].gb_s_per_link


def pcie_gb_s(links: Links, generation: int, lanes: int) -> float:
    """Return what so many lanes carry one way; UnreadableFact where no row tells."""
    rate = next((row.gb_s_per_lane for row in links.pcie if row.generation == generation), None)
    if rate is None:
        raise UnreadableFact(f"the rate of PCIe {generation}.0 is not in links.toml")
    return rate * lanes


def grown(size_bytes: int, limit_gb_s: float, gpus: int, hop_us: float) -> float:
    """Return which share of the speed with large messages a message of this size can reach."""
    half_bytes = limit_gb_s * 1e3 * hop_us * gpus
    return size_bytes / (size_bytes + half_bytes)


def _is_ring(seats: Seats, gpus: Sequence[int]) -> bool:
    """Tell whether NVLinks alone can carry a ring: all joined, and none at a dead end."""
    if len(islands(seats, gpus)) != 1:
        return False
    joined = [pair for pair in combinations(gpus, 2) if NVLINK.fullmatch(seats.level(*pair))]
    return len(gpus) == 2 or all(sum(gpu in pair for pair in joined) >= 2 for gpu in gpus)


def _nvlink_limit(links: Links, seats: Seats, gpus: Sequence[Gpu]) -> tuple[float, str]:
    """Return the rate of the GPU with the fewest links into the set."""
    limits = []
    for gpu in gpus:
        active = [link for link in known(gpu.nvlinks) if link.is_active is True]
        if not active:
            raise UnreadableFact(f"GPU {gpu.nvml_index}: its NVLinks are not known")
        peers = [other.nvml_index for other in gpus if other is not gpu]
        # To a switch all links lead to each peer; without one, each peer has its own.
        into_set = sum(
            int(match[1]) for peer in peers if (match := NVLINK.fullmatch(seats.level(gpu.nvml_index, peer)))
        )
        count, generation = min(into_set, len(active)), known(active[0].generation)
        rate = nvlink_gb_s(links, generation, known(gpu.compute_capability))
        limits.append((count * rate, f"{count} NVLinks {generation} x {rate:g} GB/s = {count * rate:g} GB/s one way"))
    return min(limits)


def _pcie_limit(links: Links, gpus: Sequence[Gpu]) -> tuple[float, str]:
    limits = []
    for gpu in gpus:
        pcie = known(gpu.pcie)
        generation, lanes = known(pcie.gen_max), known(pcie.width)
        rate = pcie_gb_s(links, generation, lanes)
        limits.append((rate, f"PCIe {generation}.0 x{lanes} = {rate:.1f} GB/s one way"))
    return min(limits)


def _has_nvls(links: Links, seats: Seats, gpus: Sequence[Gpu]) -> bool:
    """Tell whether NCCL takes NVLS: a switch joins all, and there are more GPUs than the rule says."""
    indices = [gpu.nvml_index for gpu in gpus]
    if not all(NVLINK.fullmatch(seats.level(a, b)) for a, b in combinations(indices, 2)):
        return False
    capability = known(gpus[0].compute_capability)
    rule = next((row for row in links.nvls if row.compute_capability == capability), None)
    return rule is not None and len(gpus) > rule.above_gpus


def _expected(
    links: Links, path: str, limit: float, gpus: int, size_bytes: int, words: str, collective: Collective
) -> Expected:
    reach, curve = _reach(links, path), links.curve[0]
    share = grown(size_bytes, limit, gpus, curve.hop_us)
    told = [f"{words} on the slowest GPU", _share(reach)]
    if path == NVLS_PATH:
        told.append(f"NVLS applies to all-reduce over {gpus} GPUs and may exceed the links")
    told.append(f"x {share:.2f} at {size_text(size_bytes)}")
    low, high = reach.low * limit * share, reach.high * limit
    return Expected(collective.value, size_bytes, path, limit, low, high, "; ".join(told))


def _reach(links: Links, path: str) -> Reach:
    return next(row for row in links.reach if row.path == path)


def _share(reach: Reach) -> str:
    return f"healthy is {reach.low:.0%} to {reach.high:.0%} of it"
