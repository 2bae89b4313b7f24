"""What a GPU's link to the host carries one way, and what the links between two GPUs do; only where that is known."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations

from preflight.errors import UnreadableFact
from preflight.model.facts import Gpu, NodeFacts, known
from preflight.model.gpu_test import PairLimit
from preflight.model.links import Links
from preflight.plan.expected import nvlink_gb_s, pcie_gb_s
from preflight.plan.seats import NVLINK, Seats, seats_of


def host_limits(links: Links, gpus: Sequence[Gpu]) -> tuple[tuple[int, float], ...]:
    """Return the rate of each GPU's PCIe link at its full generation and the lanes that it has."""
    found = ((gpu.nvml_index, _or_none(lambda gpu=gpu: _pcie(links, gpu))) for gpu in gpus)  # type: ignore[misc]
    return tuple((index, rate) for index, rate in found if rate is not None)


def pair_limits(links: Links, node: NodeFacts, gpus: Sequence[Gpu]) -> tuple[PairLimit, ...]:
    """Return the rate between each two GPUs: their NVLinks, or the slower of their PCIe links."""
    try:
        seats = seats_of(node)
    except UnreadableFact:
        return ()
    limits = []
    for one, other in combinations(gpus, 2):
        rate = _or_none(lambda one=one, other=other: _between(links, seats, one, other))  # type: ignore[misc]
        if rate is not None:
            a, b = sorted((one.nvml_index, other.nvml_index))
            limits.append(PairLimit(a, b, seats.level(a, b), rate))
    return tuple(limits)


def _between(links: Links, seats: Seats, one: Gpu, other: Gpu) -> float:
    match = NVLINK.fullmatch(seats.level(one.nvml_index, other.nvml_index))
    if match is None:
        return min(_pcie(links, one), _pcie(links, other))
    active = [link for link in known(one.nvlinks) if link.is_active is True]
    if not active:
        raise UnreadableFact(f"GPU {one.nvml_index}: its NVLinks are not known")
    return int(match[1]) * nvlink_gb_s(links, known(active[0].generation), known(one.compute_capability))


def _pcie(links: Links, gpu: Gpu) -> float:
    pcie = known(gpu.pcie)
    return pcie_gb_s(links, known(pcie.gen_max), known(pcie.width))


def _or_none(read: Callable[[], float]) -> float | None:
    try:
        return read()
    except UnreadableFact:
        return None
