from __future__ import annotations

from preflight.judge.node.nvlink_down_fabric_state import nvlink_down
from preflight.model.facts import Gap
from preflight.model.finding import Severity
from preflight.model.gpu import LinkPeer, NvLink
from tests.gpus import gpu, nvlink
from tests.judge.findings import found, on_gpus, only, skips
from tests.node_facts import gpu_case, gpu_node

DOWN = Gap("the link is down")


def links(count: int, down: tuple[int, ...] = (), peer: LinkPeer = LinkPeer.SWITCH) -> tuple[NvLink, ...]:
    return tuple(nvlink(i, is_active=i not in down, peer=DOWN if i in down else peer) for i in range(count))


def test_a_link_down_on_a_switch_machine_fails_and_is_named() -> None:
    finding = only(on_gpus(nvlink_down, gpu_node(8, gpus=(*map(gpu, range(7)), gpu(7, nvlinks=links(18, (7,)))))))
    assert finding.severity is Severity.FAIL
    assert "17 of 18 NVLinks are up, link 7 is not" in finding.problem


def test_a_gpu_that_lists_fewer_links_than_its_peers_is_found() -> None:
    assert only(on_gpus(nvlink_down, gpu_node(gpus=(gpu(0), gpu(1, nvlinks=links(17))))))


def test_all_links_of_one_gpu_down_on_a_switch_machine_is_found() -> None:
    dead = gpu(1, nvlinks=links(18, tuple(range(18))))
    assert only(on_gpus(nvlink_down, gpu_node(gpus=(gpu(0), dead))))


def test_gpus_without_a_bridge_beside_bridged_ones_are_fine() -> None:
    bridged = [gpu(i, nvlinks=links(12, peer=LinkPeer.GPU)) for i in (0, 1)]
    solo = [gpu(i, nvlinks=links(12, tuple(range(12)))) for i in (2, 3)]
    assert on_gpus(nvlink_down, gpu_node(4, gpus=(*bridged, *solo))) == ()


def test_a_bridge_with_a_link_down_is_a_warning() -> None:
    pair = (gpu(0, nvlinks=links(12, peer=LinkPeer.GPU)), gpu(1, nvlinks=links(12, (3,), LinkPeer.GPU)))
    assert only(on_gpus(nvlink_down, gpu_node(gpus=pair))).severity is Severity.WARN


def test_gpus_without_nvlink_are_fine() -> None:
    assert on_gpus(nvlink_down, gpu_node(gpus=(gpu(0, nvlinks=()), gpu(1, nvlinks=())))) == ()


def test_another_model_may_have_fewer_links() -> None:
    assert on_gpus(nvlink_down, gpu_node(gpus=(gpu(0), gpu(1, name="NVIDIA A100", nvlinks=links(12))))) == ()


def test_a_gpu_that_is_not_used_may_have_lost_links() -> None:
    lost = gpu_node(gpus=(gpu(0), gpu(1, nvlinks=links(18, (7,)))))
    assert found(nvlink_down, gpu_case(nodes=(lost,), gpus=(0,))) == ()


def test_links_that_could_not_be_read_skip_the_check() -> None:
    assert skips(nvlink_down, gpu_case(nodes=(gpu_node(1, gpus=(gpu(0, nvlinks=Gap("the call hangs")),)),)))


def test_a_link_whose_state_could_not_be_read_is_not_called_down() -> None:
    unknown = gpu(1, nvlinks=(nvlink(0, is_active=Gap("the call hangs")), *links(18)[1:]))
    assert "the call hangs" in skips(nvlink_down, gpu_case(nodes=(gpu_node(gpus=(gpu(0), unknown)),)))[0].reason
