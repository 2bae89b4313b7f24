"""The rates of a node's links, and the speeds that collectives should reach over these links."""
# preflight has no list of machines. The speeds are computed from the links that the node has, and from the rate of each
# kind of link.

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from itertools import combinations

from preflight.errors import DispensableFact, NotApplicable, UnreadableFact
from preflight.model.collective import Collective
from preflight.model.facts import Gap, Gpu, NodeFacts, known
from preflight.model.gap import NOT_OFFERED
from preflight.model.gpu import NvLink
from preflight.model.gpu_test import PairLimit
from preflight.model.links import Expected, Links
from preflight.model.transport import NVLS, Carrier, Transport
from preflight.model.trial import TrialResult
from preflight.model.units import size_text
from preflight.search.gpus.locality import NVLINK, Locality, islands, locality_of

NO_GPU_TRIED = Gap("no GPU was tested, and the expected speed of a CPU path is unknown")
NVLINK_PATH, NVLS_PATH, PCIE_PATH = "nvlink", "nvls", "pcie"


def expected_busbw(
    links: Links,
    node: NodeFacts,
    gpus: Sequence[int],
    collective: Collective,
    size_bytes: int,
    transport: Sequence[Carrier] = (),
) -> Expected:
    """Return the bus bandwidth that a collective between GPUs of one node should reach.

    Raise UnreadableFact if the speed of a link is not known. Raise NotApplicable if there is only one GPU, or if the
    ranks communicate over the network.
    """
    # `transport` has the transports that a test run reported, or is empty.
    taken = {carrier.transport for carrier in transport}
    if Transport.NET in taken:
        raise NotApplicable("ranks of this node communicate over the network, not over the links between their GPUs")
    if len(gpus) < 2:
        raise NotApplicable("a single GPU has no link to another one in use")
    locality = locality_of(node)
    chosen = [gpu for gpu in known(node.gpus) if gpu.nvml_index in gpus]
    if _is_ring(locality, gpus):
        limit, words = _nvlink_limit(links, locality, chosen)
        has_nvls = collective is Collective.ALL_REDUCE and _has_nvls(links, locality, chosen)
        path = NVLS_PATH if has_nvls and (not transport or NVLS in transport) else NVLINK_PATH
        if Transport.SHM in taken:
            (limit, words), path = _pcie_limit(links, chosen), PCIE_PATH
            words = f"through host memory: {words}"
    else:
        (limit, words), path = _pcie_limit(links, chosen), PCIE_PATH
    reach, curve = next(row for row in links.reach if row.path == path), links.curve[0]
    share = grown(size_bytes, limit, len(gpus), curve.hop_us)
    # A small message may come nearer to the links than the least healthy machine's, but not as near as a large one.
    low, high = reach.low * share, reach.high * math.sqrt(share)
    formula = [
        f"{words} on the slowest GPU",
        f"healthy busbw at {size_text(size_bytes)} is {low:.0%} to {high:.0%} of this rate",
    ]
    if path == NVLS_PATH:
        formula.append(f"NVLS applies to all-reduce over {len(gpus)} GPUs and may exceed the links")
    return Expected(collective.value, size_bytes, path, limit, low * limit, high * limit, "; ".join(formula))


def expected_of_trials(
    links: Links, node: NodeFacts, gpus: Sequence[int], trials: Sequence[TrialResult]
) -> tuple[Expected, ...] | Gap:
    """Return the expected bus bandwidth for every collective and size in `trials`.

    If any of these values is unknown, return a Gap object with the reason.
    """
    if not gpus:
        return NO_GPU_TRIED
    points = dict.fromkeys((each.collective, each.size_bytes) for trial in trials for each in trial.results)
    try:
        return tuple(expected_busbw(links, node, gpus, *point) for point in points)
    except (NotApplicable, UnreadableFact) as error:
        return Gap(str(error))


def nvlink_gb_s(links: Links, generation: str, compute_capability: str) -> float:
    """Return the rate of one NVLink in one direction, in GB/s. Raise DispensableFact if `links` has no such rate."""
    for capability in (compute_capability, ""):
        for row in links.nvlink:
            if (row.generation, row.compute_capability) == (generation, capability):
                return row.gb_s_per_link
    raise DispensableFact(f"the rate of NVLink {generation} is not in links.toml")


def pcie_gb_s(links: Links, generation: int, lanes: int) -> float:
    """Return the rate of `lanes` PCIe lanes in one direction, in GB/s.

    Raise DispensableFact if `links` has no such rate.
    """
    for row in links.pcie:
        if row.generation == generation:
            return row.gb_s_per_lane * lanes
    raise DispensableFact(f"the rate of PCIe {generation}.0 is not in links.toml")


def grown(size_bytes: int, limit_gb_s: float, gpus: int, hop_us: float) -> float:
    """Return the share (0 to 1) of the speed limit `limit_gb_s` that a message of `size_bytes` can reach.

    Each of the `gpus` GPUs adds a latency of `hop_us` microseconds.
    """
    # The latency slows small messages more than large ones.
    half_bytes = limit_gb_s * 1e3 * hop_us * gpus
    return size_bytes / (size_bytes + half_bytes)


def _is_ring(locality: Locality, gpus: Sequence[int]) -> bool:
    """Return whether NVLinks alone can carry a ring of the GPUs.

    NVLinks must join all GPUs. With three or more GPUs, each GPU must have NVLinks to at least two others.
    """
    if len(islands(locality, gpus)) != 1:
        return False
    joined = [pair for pair in combinations(gpus, 2) if NVLINK.fullmatch(locality.level(*pair))]
    return len(gpus) == 2 or all(sum(gpu in pair for pair in joined) >= 2 for gpu in gpus)


def _nvlink_limit(links: Links, locality: Locality, gpus: Sequence[Gpu]) -> tuple[float, str]:
    """Find the GPU that has the slowest NVLinks to the other GPUs in `gpus`.

    Return the GPU's one-way rate in GB/s, and the derivation of this rate as text.
    """
    limits = []
    for gpu in gpus:
        active, rate = _nvlinks(links, gpu)
        levels = (locality.level(gpu.nvml_index, other.nvml_index) for other in gpus if other is not gpu)
        # To a switch all links lead to each peer; without one, each peer has its own.
        count = min(sum(int(match[1]) for match in map(NVLINK.fullmatch, levels) if match), len(active))
        words = f"{count} NVLinks {known(active[0].generation)} x {rate:g} GB/s = {count * rate:g} GB/s one way"
        limits.append((count * rate, words))
    return min(limits)


def _nvlinks(links: Links, gpu: Gpu) -> tuple[list[NvLink], float]:
    """Return the active NVLinks of a GPU, and the rate of one NVLink in GB/s."""
    active = [link for link in known(gpu.nvlinks) if link.is_active is True]
    if not active:
        raise UnreadableFact(f"GPU {gpu.nvml_index}: its NVLinks are not known")
    return active, nvlink_gb_s(links, known(active[0].generation), known(gpu.compute_capability))


def _pcie_limit(links: Links, gpus: Sequence[Gpu]) -> tuple[float, str]:
    """Return the rate in GB/s of the slowest PCIe link, and the derivation of this rate as text.

    The computation uses the highest generation that the link supports, and the link's present width.
    """
    limits = []
    for gpu in gpus:
        pcie = known(gpu.pcie)
        if isinstance(pcie.gen_max, Gap) and pcie.gen_max.reason.startswith(NOT_OFFERED):
            raise NotApplicable(f"the driver reports no PCIe link of GPU {gpu.nvml_index}; it may be a virtual GPU")
        generation, lanes = known(pcie.gen_max), known(pcie.width)
        rate = pcie_gb_s(links, generation, lanes)
        limits.append((rate, f"PCIe {generation}.0 x{lanes} = {rate:.1f} GB/s one way"))
    return min(limits)


def expects_nvls(links: Links, node: NodeFacts, gpus: Sequence[int]) -> bool:
    """Return whether NCCL uses NVLS for large all-reduces of these GPUs. Raise UnreadableFact if a link isn't known."""
    return _has_nvls(links, locality_of(node), [gpu for gpu in known(node.gpus) if gpu.nvml_index in gpus])


def _has_nvls(links: Links, locality: Locality, gpus: Sequence[Gpu]) -> bool:
    """Return whether NCCL uses NVLS.

    NCCL uses NVLS if NVLinks join every pair of GPUs, and if the number of GPUs is above the limit in `links`.
    """
    indices = [gpu.nvml_index for gpu in gpus]
    if len(indices) < 2 or not all(NVLINK.fullmatch(locality.level(a, b)) for a, b in combinations(indices, 2)):
        return False
    capability = known(gpus[0].compute_capability)
    rule = next((row for row in links.nvls if row.compute_capability == capability), None)
    return rule is not None and len(gpus) > rule.above_gpus


def host_limits(links: Links, gpus: Sequence[Gpu]) -> tuple[tuple[int, float], ...]:
    """Return (NVML index, rate of the PCIe link in GB/s) for each GPU in `gpus`.

    A GPU is left out if the rate of its link is not known.
    """
    # The rate assumes the link's highest generation and its present width.
    found = []
    for gpu in gpus:
        with suppress(NotApplicable, UnreadableFact):
            found.append((gpu.nvml_index, _pcie_limit(links, [gpu])[0]))
    return tuple(found)


def pair_limits(links: Links, node: NodeFacts, gpus: Sequence[Gpu]) -> tuple[PairLimit, ...]:
    """Return the highest possible rate between the two GPUs of each pair.

    The rate is that of the pair's NVLinks. Without NVLinks, the rate is that of the slower PCIe link. A pair with an
    unknown rate is left out.
    """
    limits: list[PairLimit] = []
    with suppress(NotApplicable, UnreadableFact):
        locality = locality_of(node)
        for one, other in combinations(gpus, 2):
            a, b = sorted((one.nvml_index, other.nvml_index))
            level = locality.level(a, b)
            with suppress(NotApplicable, UnreadableFact):
                match = NVLINK.fullmatch(level)
                rate = int(match[1]) * _nvlinks(links, one)[1] if match else _pcie_limit(links, (one, other))[0]
                limits.append(PairLimit(a, b, level, rate))
    return tuple(limits)
