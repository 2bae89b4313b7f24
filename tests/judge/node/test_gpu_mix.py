from __future__ import annotations

from dataclasses import replace

from preflight.judge.node.gpu_mix_set import gpu_mix
from preflight.model.finding import Severity
from tests.gpus import gpu
from tests.judge.findings import found, on, on_gpus, only
from tests.node_facts import gpu_case, gpu_node, node


def test_gpus_of_one_model_are_fine() -> None:
    assert on_gpus(gpu_mix, gpu_node(8)) == ()


def test_a_machine_without_gpus_mixes_none() -> None:
    assert on(gpu_mix, node()) == ()


def test_an_odd_one_is_named() -> None:
    mixed = gpu_node(3, gpus=(gpu(0), gpu(1, name="NVIDIA A40"), gpu(2)))
    finding = only(on_gpus(gpu_mix, mixed))
    assert (finding.severity, finding.subject) == (Severity.WARN, "node1 GPU 1")
    assert "2 x NVIDIA H100" in finding.problem


def test_gpus_that_are_not_used_may_be_of_any_model() -> None:
    mixed = gpu_node(3, gpus=(gpu(0), gpu(1, name="NVIDIA A40"), gpu(2)))
    assert found(gpu_mix, gpu_case(nodes=(mixed,), gpus=(0, 2))) == ()


def test_nodes_with_different_counts_are_told() -> None:
    nodes = (gpu_node(8), replace(gpu_node(7), host="gpu2"))
    assert "gpu2: 7 x" in only(found(gpu_mix, gpu_case(nodes=nodes))).problem
