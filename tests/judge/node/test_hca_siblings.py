from __future__ import annotations

from preflight.judge.node.hca_rdma_roce import hca_siblings
from preflight.model.facts import Gap
from preflight.model.finding import Severity
from preflight.model.hca import NicKind, PhysState, PortState
from tests.judge.findings import on_gpus, only
from tests.node_facts import gpu_node
from tests.topology import nic, port, roce_port

TWO = (nic("mlx5_0"), nic("mlx5_1"))


def test_ports_of_one_model_that_run_alike_are_fine() -> None:
    assert on_gpus(hca_siblings, gpu_node(nics=TWO, hca_ports=(port("mlx5_0"), port("mlx5_1")))) == ()


def test_the_slower_one_of_two_is_a_warning() -> None:
    finding = only(
        on_gpus(hca_siblings, gpu_node(nics=TWO, hca_ports=(port("mlx5_0"), port("mlx5_1", rate_gbit_s=200.0))))
    )
    assert finding.severity is Severity.WARN
    assert "mlx5_1:1" in finding.subject


def test_a_port_that_is_down_is_information_only() -> None:
    down = port("mlx5_1", state=PortState.DOWN, phys_state=PhysState.DISABLED, rate_gbit_s=10.0)
    assert only(on_gpus(hca_siblings, gpu_node(nics=TWO, hca_ports=(port("mlx5_0"), down)))).severity is Severity.INFO


def test_another_model_or_link_layer_or_kind_is_no_sibling() -> None:
    nics = (
        nic("mlx5_0"),
        nic("mlx5_1", device="15b3:101d"),
        nic("mlx5_2", kind=NicKind.ROCE),
        nic("efa_0", kind=NicKind.EFA),
    )
    ports = (port("mlx5_0"), port("mlx5_1", rate_gbit_s=100.0), roce_port("mlx5_2"), port("efa_0", rate_gbit_s=100.0))
    assert on_gpus(hca_siblings, gpu_node(nics=nics, hca_ports=ports)) == ()


def test_adapters_of_an_unknown_model_are_not_compared() -> None:
    nics = tuple(nic(name, device=Gap("not there")) for name in ("mlx5_0", "mlx5_1"))
    assert (
        on_gpus(hca_siblings, gpu_node(nics=nics, hca_ports=(port("mlx5_0"), port("mlx5_1", rate_gbit_s=10.0)))) == ()
    )
