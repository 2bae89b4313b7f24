from __future__ import annotations

from preflight.judge.node.bar1_pcie import bar1_small
from preflight.model.facts import Gap
from preflight.model.finding import Severity
from tests.gpus import gpu
from tests.judge.findings import on_gpus, only, skips
from tests.node_facts import MIB, gpu_case, gpu_node


def test_a_bar_that_shows_all_memory_is_fine() -> None:
    assert on_gpus(bar1_small, gpu_node(2)) == ()


def test_a_small_bar_beside_large_ones_is_a_warning() -> None:
    finding = only(on_gpus(bar1_small, gpu_node(gpus=(gpu(0), gpu(1, bar1_total_bytes=256 * MIB)))))
    assert finding.severity is Severity.WARN
    assert "256 MiB of 80 GiB" in finding.problem
    assert "others of this model have 128 GiB" in finding.problem


def test_small_bars_everywhere_without_rdma_are_a_desktops() -> None:
    assert on_gpus(bar1_small, gpu_node(gpus=tuple(gpu(i, bar1_total_bytes=256 * MIB) for i in range(2)))) == ()


def test_a_bar_that_could_not_be_read_skips_the_check() -> None:
    assert skips(bar1_small, gpu_case(nodes=(gpu_node(1, gpus=(gpu(0, bar1_total_bytes=Gap("the call hangs")),)),)))
