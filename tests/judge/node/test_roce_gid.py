from __future__ import annotations

from dataclasses import replace

from preflight.judge.node.hca_rdma_roce import roce_gid
from preflight.model.facts import Gap
from preflight.model.finding import Severity
from preflight.model.hca import NicKind, PortState
from tests.judge.findings import on_gpus, only, skips
from tests.node_facts import gpu_case, gpu_node
from tests.topology import V1, nic, port, roce_port

ROCE = (nic(kind=NicKind.ROCE),)


def test_a_version_2_gid_is_enough() -> None:
    assert on_gpus(roce_gid, gpu_node(nics=ROCE, hca_ports=(roce_port(),))) == ()


def test_a_port_with_version_1_only_is_a_warning() -> None:
    assert only(on_gpus(roce_gid, gpu_node(nics=ROCE, hca_ports=(roce_port(gids=(V1,)),)))).severity is Severity.WARN


def test_a_port_without_any_gid_is_a_warning() -> None:
    assert only(on_gpus(roce_gid, gpu_node(nics=ROCE, hca_ports=(roce_port(gids=()),))))


def test_a_port_that_is_down_or_infiniband_or_efa_is_not_asked() -> None:
    assert on_gpus(roce_gid, gpu_node(nics=ROCE, hca_ports=(roce_port(gids=(), state=PortState.DOWN),))) == ()
    assert on_gpus(roce_gid, gpu_node(nics=(nic(),), hca_ports=(port(),))) == ()
    efa = gpu_node(nics=(nic(kind=NicKind.EFA),), hca_ports=(roce_port(gids=()),))
    assert on_gpus(roce_gid, efa) == ()


def test_types_that_cannot_be_read_skip_the_check() -> None:
    unread = replace(V1, type=Gap("gid_attrs: not there"))
    assert skips(roce_gid, gpu_case(nodes=(gpu_node(nics=ROCE, hca_ports=(roce_port(gids=(unread,)),)),)))
