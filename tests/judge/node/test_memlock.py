from __future__ import annotations

from preflight.judge.node.memlock_nofile_pids_stack import LOW_BYTES, memlock
from preflight.model.facts import Limit, NetifKind
from preflight.model.finding import Blame, Severity
from preflight.model.hca import PortState
from tests.judge.findings import found, on, on_gpus, only
from tests.node_facts import LO, MIB, contained, failed_with, gpu_case, gpu_node, limits, netif, node, trial
from tests.topology import nic, port

IPOIB = (LO, netif(), netif("ib0", kind=NetifKind.IPOIB))
NO_MEMORY = failed_with("Call to ibv_reg_mr failed with error Cannot allocate memory")


def test_the_stock_limit_is_no_matter_without_gpus() -> None:
    assert on(memlock, node()) == ()


def test_the_stock_limit_is_worth_a_note_on_a_gpu_node() -> None:
    assert only(on_gpus(memlock, gpu_node())).severity is Severity.INFO


def test_the_stock_limit_is_a_warning_beside_an_infiniband_interface() -> None:
    assert only(on_gpus(memlock, gpu_node(netifs=IPOIB))).severity is Severity.WARN


def test_an_unlimited_limit_is_fine() -> None:
    assert on_gpus(memlock, gpu_node(netifs=IPOIB, limits=limits(memlock_bytes=Limit.UNLIMITED))) == ()


def test_a_trial_that_could_not_register_memory_fails_the_run() -> None:
    assert only(found(memlock, gpu_case(NO_MEMORY))).severity is Severity.FAIL


def test_a_limit_at_which_a_trial_failed_is_too_low_however_high_it_is() -> None:
    high = gpu_node(limits=limits(memlock_bytes=2 * LOW_BYTES.whole))
    assert only(found(memlock, gpu_case(NO_MEMORY, nodes=(high,)))).severity is Severity.FAIL
    unlimited = gpu_node(limits=limits(memlock_bytes=Limit.UNLIMITED))
    assert found(memlock, gpu_case(NO_MEMORY, nodes=(unlimited,))) == ()


def test_it_stays_a_warning_where_a_candidate_works() -> None:
    assert only(found(memlock, gpu_case(NO_MEMORY, trial("ib-off")))).severity is Severity.WARN


def test_memory_that_could_not_be_allocated_elsewhere_is_another_matter() -> None:
    finding = only(found(memlock, gpu_case(failed_with("cudaMalloc: Cannot allocate memory"))))
    assert finding.severity is Severity.INFO


def test_a_container_is_told_the_option_of_docker() -> None:
    finding = only(on_gpus(memlock, contained(gpu_node(limits=limits(memlock_bytes=MIB // 16)))))
    assert finding.blame is Blame.CONTAINER
    assert "--ulimit memlock=-1" in finding.fix


def test_an_active_rdma_adapter_makes_the_stock_limit_a_warning() -> None:
    node = gpu_node(nics=(nic(),), hca_ports=(port(),))
    assert only(on_gpus(memlock, node)).severity is Severity.WARN


def test_an_adapter_whose_ports_are_down_leaves_it_a_note() -> None:
    node = gpu_node(nics=(nic(),), hca_ports=(port(state=PortState.DOWN),))
    assert only(on_gpus(memlock, node)).severity is Severity.INFO


def test_the_least_that_is_enough_is_enough() -> None:
    assert on_gpus(memlock, gpu_node(limits=limits(memlock_bytes=LOW_BYTES.whole))) == ()
    assert only(on_gpus(memlock, gpu_node(limits=limits(memlock_bytes=LOW_BYTES.whole - 1)))).severity is Severity.INFO
