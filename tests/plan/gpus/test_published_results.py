"""Every published nccl-tests result of one node (peers: facts 8.4) lies within the band that its links give.

Pass thresholds of other tools are floors that a site chose, not measurements: a healthy band may not begin above the
highest that others reject by, which is why they are listed as well.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import Any

import pytest

from preflight.model.collective import Collective
from preflight.model.facts import Gap, GpuPath, NodeFacts, known
from preflight.model.gpu import LinkPeer, NvLink, PcieLink
from preflight.model.transport import Carrier
from preflight.plan.gpus.link_speeds import expected_busbw
from preflight.system.links import load_links
from tests.facts import GIB, MIB, gpu_node

AR, AG, RS = Collective.ALL_REDUCE, Collective.ALL_GATHER, Collective.REDUCE_SCATTER
RING = (Carrier.from_text("0>1 via P2P/CUMEM"),)
NO_PEER = Gap("not told")


def _node(count: int, level: str, capability: str, **values: Any) -> NodeFacts:
    made = gpu_node(count)
    gpus = tuple(replace(gpu, compute_capability=capability, **values) for gpu in known(made.gpus))
    return replace(made, gpus=gpus, gpu_paths=tuple(GpuPath(a, b, level) for a, b in combinations(range(count), 2)))


def nvlink(count: int, links: int, generation: str, capability: str) -> NodeFacts:
    listed = tuple(NvLink(i, True, generation, LinkPeer.SWITCH, NO_PEER, 0, 0, 0) for i in range(links))
    return _node(count, f"NV{links}", capability, nvlinks=listed)


def pcie(count: int, generation: int, capability: str) -> NodeFacts:
    return _node(count, "SYS", capability, nvlinks=(), pcie=PcieLink(1, generation, generation, 16, 16, 0))


def a100(count: int = 8) -> NodeFacts:
    return nvlink(count, 12, "3.1", "8.0")


def hopper(count: int = 8) -> NodeFacts:
    return nvlink(count, 18, "4.0", "9.0")


def b200(count: int = 8) -> NodeFacts:
    return nvlink(count, 18, "5.0", "10.0")


def bridged_pairs() -> NodeFacts:
    """Return three GPUs of which a bridge joins two: data of all three crosses PCIe."""
    made = pcie(3, 4, "8.0")
    return replace(made, gpu_paths=(GpuPath(0, 1, "NV12"), GpuPath(0, 2, "SYS"), GpuPath(1, 2, "SYS")))


MEASURED = [
    (a100(), AR, 8 * GIB, 235.3, "superbenchmark tests/data/nccl_allreduce.log"),
    (a100(), AR, GIB, 230.3, "superbenchmark tests/data/nccl_allreduce.log"),
    (a100(), AR, 128 * MIB, 202.1, "superbenchmark tests/data/nccl_allreduce.log"),
    (a100(), AR, 4 * GIB, 232.5, "NVIDIA/nccl issue 1048"),
    (a100(2), AR, 8 * GIB, 208.0, "NVIDIA/nccl-tests issue 178, bridge"),
    (bridged_pairs(), AR, 8 * GIB, 20.0, "NVIDIA/nccl-tests issue 178, 3 GPUs"),
    (hopper(), AR, 8 * GIB, 480.0, "NVIDIA/nccl-tests issue 212"),
    (hopper(), AG, 8 * GIB, 370.0, "NVIDIA/nccl-tests issue 212"),
    (hopper(), AR, 16 * GIB, 483.1, "awsome-distributed-training, aws-batch"),
    (hopper(), AR, 8 * GIB, 480.4, "awsome-distributed-training, aws-batch"),
    (hopper(), AR, 4 * GIB, 476.0, "awsome-distributed-training, aws-batch"),
    (hopper(), AR, 16 * GIB, 482.3, "ml-engineering network, H200"),
    (hopper(), AG, 16 * GIB, 361.4, "ml-engineering network, H200"),
    (hopper(), RS, 16 * GIB, 362.9, "ml-engineering network, H200"),
    (hopper(4), AR, 8 * GIB, 363.0, "ml-engineering network, H200"),
    (hopper(5), AR, 8 * GIB, 414.0, "ml-engineering network, H200"),
    (hopper(6), AR, 8 * GIB, 436.0, "ml-engineering network, H200"),
    (hopper(7), AR, 8 * GIB, 460.0, "ml-engineering network, H200"),
    (hopper(8), AR, 8 * GIB, 473.0, "ml-engineering network, H200"),
    (b200(), AR, 16 * GIB, 845.7, "ml-engineering network, p6-b200"),
    (b200(), AR, 4 * GIB, 740.6, "ml-engineering network, p6-b200"),
    (b200(), AR, GIB, 723.3, "ml-engineering network, p6-b200"),
    (b200(4), AR, 8 * GIB, 673.0, "ml-engineering network, p6-b200"),
    (b200(5), AR, 8 * GIB, 678.0, "ml-engineering network, p6-b200"),
    (b200(6), AR, 8 * GIB, 778.0, "ml-engineering network, p6-b200"),
    (b200(8), AR, 8 * GIB, 838.0, "ml-engineering network, p6-b200"),
    (pcie(8, 5, "12.0"), AR, 2 * GIB, 37.6, "voipmonitor/rtx6kpro, tuned channels"),
    (pcie(8, 5, "12.0"), AR, 2 * GIB, 41.1, "voipmonitor/rtx6kpro, tuned channels"),
    (pcie(8, 5, "12.0"), AR, 32 * MIB, 22.2, "voipmonitor/rtx6kpro, two sockets"),
]
WITHOUT_NVLS = [
    (hopper(), AR, 16 * GIB, 367.6, "ml-engineering network, H200, NVLS off"),
    (b200(), AR, 8 * GIB, 682.0, "ml-engineering network, p6-b200, NVLS off"),
]
# Highest thresholds by which other tools reject; T in the table.
THRESHOLDS = [
    (nvlink(8, 6, "2.2", "7.0"), 8 * GIB, 110.0, "azurehpc nd40rs_v2"),
    (a100(), 16 * GIB, 228.0, "azurehpc nd96amsr_a100_v4"),
    (hopper(), 16 * GIB, 460.0, "azurehpc nd96isr_h100_v5"),
    (pcie(4, 4, "8.0"), 8 * GIB, 25.0, "azurehpc nc96ads_a100_v4"),
]
# Not held against a band: 2 x H100 over a bridge, 115 to 116 of 300 (NVIDIA/nccl issue 1161), which asks why it is so
# low; several nodes; other vendors' GPUs; and GB200 beyond one tray.


def test_every_measurement_is_within_its_band() -> None:
    outside = []
    cases = [(*each, ()) for each in MEASURED] + [(*each, RING) for each in WITHOUT_NVLS]
    for node, collective, size_bytes, busbw, source, ways in cases:
        band = expected_busbw(load_links(), node, range(len(known(node.gpus))), collective, size_bytes, ways)
        if not band.low_gb_s <= busbw <= band.high_gb_s:
            outside.append((source, busbw, band.low_gb_s, band.high_gb_s))
    assert outside == []


@pytest.mark.parametrize(("node", "size_bytes", "floor", "source"), THRESHOLDS, ids=lambda each: str(each)[:24])
def test_no_band_begins_above_what_others_reject_by(
    node: NodeFacts, size_bytes: int, floor: float, source: str
) -> None:
    band = expected_busbw(load_links(), node, range(len(known(node.gpus))), AR, size_bytes)
    assert band.low_gb_s <= floor <= band.high_gb_s, source
