from __future__ import annotations

from preflight.judge.node.cpu_affinity_nic_numa import nic_numa
from preflight.model.facts import Gap
from preflight.model.finding import Severity
from preflight.model.hca import PortState
from tests.judge.findings import found, only, skips
from tests.node_facts import gpu_case, gpu_node
from tests.topology import port, reaching

ONE_EACH = reaching((0, "mlx5_0", "PIX"), (0, "mlx5_1", "SYS"), (1, "mlx5_0", "SYS"), (1, "mlx5_1", "PXB"))
BOTH_AT_GPU_0 = reaching((0, "mlx5_0", "PIX"), (1, "mlx5_0", "SYS"))


def test_a_near_adapter_for_each_gpu_is_fine() -> None:
    assert found(nic_numa, gpu_case(nodes=(gpu_node(nic_paths=ONE_EACH),), gpus=(0, 1))) == ()


def test_one_gpu_of_several_without_a_near_adapter_is_information() -> None:
    finding = only(found(nic_numa, gpu_case(nodes=(gpu_node(nic_paths=BOTH_AT_GPU_0),), gpus=(0, 1))))
    assert finding.severity is Severity.INFO
    assert "GPUs 1" in finding.subject


def test_a_set_without_any_near_adapter_is_a_warning_that_names_better_gpus() -> None:
    finding = only(found(nic_numa, gpu_case(nodes=(gpu_node(nic_paths=BOTH_AT_GPU_0),), gpus=(1,))))
    assert finding.severity is Severity.WARN
    assert "among GPUs 0," in finding.fix


def test_an_adapter_that_is_down_counts_for_nothing() -> None:
    ports = (port("mlx5_0"), port("mlx5_1", state=PortState.DOWN))
    node = gpu_node(nic_paths=ONE_EACH, hca_ports=ports)
    assert only(found(nic_numa, gpu_case(nodes=(node,), gpus=(0, 1)))).subject.endswith("GPUs 1")


def test_a_node_without_adapters_has_nothing_to_say() -> None:
    assert found(nic_numa, gpu_case(nodes=(gpu_node(),), gpus=(0, 1))) == ()


def test_unknown_paths_skip_the_check_or_are_left_out() -> None:
    assert skips(nic_numa, gpu_case(nodes=(gpu_node(nic_paths=Gap("/sys/bus: not there")),), gpus=(0,)))
    assert found(nic_numa, gpu_case(nodes=(gpu_node(nic_paths=reaching((0, "mlx5_0", "NODE"))),), gpus=(0, 1))) == ()
