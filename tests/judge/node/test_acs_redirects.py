from __future__ import annotations

from preflight.judge.node.acs_iommu import acs_redirects
from preflight.model.facts import PciKind
from preflight.model.finding import Severity
from tests.judge.findings import found, only, skips
from tests.node_facts import gpu_case, gpu_node, system
from tests.topology import NEEDS_ROOT, pcie_node, with_device

BOTH = {"gpus": (0, 1)}
REDIRECTS = ("SrcValid", "ReqRedir", "CmpltRedir", "UpstreamFwd")


def test_bridges_without_redirection_are_fine() -> None:
    assert found(acs_redirects, gpu_case(nodes=(pcie_node(),), **BOTH)) == ()


def test_a_bridge_between_the_gpus_that_redirects_is_a_warning_and_named() -> None:
    node = with_device(pcie_node(), PciKind.SWITCH_DOWNSTREAM, acs=REDIRECTS)
    finding = only(found(acs_redirects, gpu_case(nodes=(node,), **BOTH)))
    assert finding.severity is Severity.WARN
    assert "0000:03:00.0" in finding.subject


def test_source_validation_alone_redirects_nothing() -> None:
    node = with_device(pcie_node(), PciKind.SWITCH_DOWNSTREAM, acs=("SrcValid",))
    assert found(acs_redirects, gpu_case(nodes=(node,), **BOTH)) == ()


def test_a_bridge_above_both_gpus_is_not_on_their_way() -> None:
    node = with_device(pcie_node(), PciKind.ROOT_PORT, acs=REDIRECTS)
    assert found(acs_redirects, gpu_case(nodes=(node,), **BOTH)) == ()


def test_a_virtual_machine_must_keep_it() -> None:
    node = with_device(pcie_node(system=system(hypervisor="kvm")), PciKind.SWITCH_DOWNSTREAM, acs=REDIRECTS)
    assert found(acs_redirects, gpu_case(nodes=(node,), **BOTH)) == ()


def test_without_root_the_check_says_that_it_could_not_look() -> None:
    node = with_device(pcie_node(), PciKind.SWITCH_DOWNSTREAM, acs=NEEDS_ROOT)
    assert "root" in skips(acs_redirects, gpu_case(nodes=(node,), **BOTH))[0].reason


def test_gpus_with_nvlink_between_them_and_single_gpus_do_not_care() -> None:
    node = with_device(pcie_node(("NV18",)), PciKind.SWITCH_DOWNSTREAM, acs=REDIRECTS)
    assert found(acs_redirects, gpu_case(nodes=(node,), **BOTH)) == ()
    assert found(acs_redirects, gpu_case(nodes=(gpu_node(1),), gpus=(0,))) == ()
