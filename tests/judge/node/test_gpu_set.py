from __future__ import annotations

from dataclasses import replace

from preflight.judge.node.gpu_mix_set import gpu_set
from preflight.model.facts import Gap, NodeFacts, known
from preflight.model.finding import Severity
from tests.judge.findings import found, only, skips
from tests.node_facts import gpu_case, gpu_node
from tests.topology import pcie_node


def _two_sockets(levels: dict[bool, str]) -> NodeFacts:
    """Return 4 GPUs, two on each socket; `levels` is the path by whether both sit on one socket."""
    pairs = [levels[a // 2 == b // 2] for a in range(4) for b in range(a + 1, 4)]
    node = pcie_node(pairs, count=4)
    return replace(node, gpus=tuple(replace(gpu, numa_node=gpu.nvml_index // 2) for gpu in known(node.gpus)))


PCIE = _two_sockets({True: "PIX", False: "SYS"})


def test_a_set_across_the_sockets_is_a_warning_that_names_a_better_one() -> None:
    finding = only(found(gpu_set, gpu_case(nodes=(PCIE,), gpus=(1, 2))))
    assert finding.severity is Severity.WARN
    assert "sockets" in finding.problem
    assert "--gpus 0,1" in finding.fix


def test_a_set_on_one_socket_is_fine() -> None:
    assert found(gpu_set, gpu_case(nodes=(PCIE,), gpus=(2, 3))) == ()


def test_all_gpus_have_no_better_set() -> None:
    assert found(gpu_set, gpu_case(nodes=(PCIE,), gpus=(0, 1, 2, 3))) == ()


def test_with_nvlink_between_all_the_sockets_are_information_only() -> None:
    node = _two_sockets({True: "NV18", False: "NV18"})
    assert only(found(gpu_set, gpu_case(nodes=(node,), gpus=(1, 2)))).severity is Severity.INFO


def test_no_choice_of_gpus_is_nothing_to_judge() -> None:
    assert found(gpu_set, gpu_case(nodes=(PCIE,))) == ()


def test_unknown_paths_skip_the_check() -> None:
    assert skips(gpu_set, gpu_case(nodes=(gpu_node(gpu_paths=Gap("NVML does not start")),), gpus=(0, 1)))
