from __future__ import annotations

from dataclasses import replace

from preflight.judge.node.bar1_pcie import pcie_width
from preflight.model.finding import Severity
from tests.gpus import NO_PAGES, PCIE, gpu
from tests.judge.findings import on_gpus, only
from tests.node_facts import gpu_node


def test_an_idle_link_of_full_width_is_fine_whatever_its_generation() -> None:
    assert on_gpus(pcie_width, gpu_node(1, gpus=(gpu(0, pcie=replace(PCIE, gen=1)),))) == ()


def test_half_the_lanes_are_a_warning_with_the_share_that_is_left() -> None:
    finding = only(on_gpus(pcie_width, gpu_node(gpus=(gpu(0), gpu(1, pcie=replace(PCIE, width=8))))))
    assert finding.severity is Severity.WARN
    assert "x8 but supports x16" in finding.problem
    assert "50%" in finding.problem


def test_a_gpu_that_tells_no_width_is_left_alone() -> None:
    assert on_gpus(pcie_width, gpu_node(1, gpus=(gpu(0, pcie=NO_PAGES),))) == ()
