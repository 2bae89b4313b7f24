from __future__ import annotations

from preflight.judge.node.hca_rdma_roce import rdma_devices
from preflight.model.facts import Gap, RdmaFacts
from preflight.model.finding import Blame, Severity
from tests.judge.findings import on, on_gpus, only, skips
from tests.node_facts import contained, gpu_case, gpu_node, node

NONE = Gap("no peermem module is loaded")
MISSING = RdmaFacts((), ("uverbs0", "uverbs1"), NONE, NONE)


def test_all_device_files_present_are_fine() -> None:
    assert on_gpus(rdma_devices, gpu_node(rdma=RdmaFacts(("uverbs0",), ("uverbs0",), NONE, NONE))) == ()


def test_a_container_without_them_is_told_the_option() -> None:
    finding = only(on_gpus(rdma_devices, contained(gpu_node(rdma=MISSING))))
    assert (finding.severity, finding.blame) == (Severity.WARN, Blame.CONTAINER)
    assert "--device /dev/infiniband" in finding.fix


def test_a_host_without_them_is_told_of_the_module() -> None:
    assert "ib_uverbs" in only(on_gpus(rdma_devices, gpu_node(rdma=MISSING))).fix


def test_without_gpus_nobody_needs_them() -> None:
    assert on(rdma_devices, node(rdma=MISSING)) == ()


def test_where_the_adapters_cannot_be_seen_it_says_so() -> None:
    unread = RdmaFacts((), Gap("/sys/class: not there"), NONE, NONE)
    assert skips(rdma_devices, gpu_case(nodes=(gpu_node(rdma=unread),)))
