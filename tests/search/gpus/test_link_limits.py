"""What links carry, for the copies below NCCL."""

from __future__ import annotations

import pytest

from preflight.model.facts import Gap, GpuPath, known
from preflight.search.gpus.link_speeds import host_limits, pair_limits
from preflight.system.links import load_links
from tests.gpus import gpu
from tests.node_facts import gpu_node


def test_a_gpus_link_to_the_host_at_full_generation() -> None:
    assert dict(host_limits(load_links(), known(gpu_node(2).gpus))) == pytest.approx({0: 63.0, 1: 63.0}, rel=0.01)


def test_a_pair_has_its_nvlinks_or_the_slower_pcie_link() -> None:
    node = gpu_node(2)
    (limit,) = pair_limits(load_links(), node, known(node.gpus))
    assert (limit.a, limit.b, limit.level, limit.gb_s) == (0, 1, "NV18", 450.0)
    over_pcie = gpu_node(2, gpu_paths=(GpuPath(0, 1, "PHB"),))
    assert pair_limits(load_links(), over_pcie, known(over_pcie.gpus))[0].gb_s == pytest.approx(63.0, rel=0.01)


def test_what_is_not_known_is_left_out() -> None:
    assert host_limits(load_links(), (gpu(0, pcie=Gap("denied")),)) == ()
    node = gpu_node(2, gpu_paths=Gap("NVML hung"))
    assert pair_limits(load_links(), node, known(node.gpus)) == ()
