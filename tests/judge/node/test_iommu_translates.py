from __future__ import annotations

import pytest

from preflight.judge.node.acs_iommu import iommu_translates
from preflight.model.facts import Gap, PciKind
from preflight.model.finding import Severity
from tests.judge.findings import found, only, skips
from tests.node_facts import gpu_case, system, trial
from tests.topology import pcie_node, with_device

BOTH = {"gpus": (0, 1)}


@pytest.mark.parametrize("kind", ["DMA", "DMA-FQ"])
def test_a_translating_group_between_pcie_gpus_is_a_warning(kind: str) -> None:
    node = with_device(pcie_node(), PciKind.GPU, iommu_type=kind)
    assert only(found(iommu_translates, gpu_case(nodes=(node,), **BOTH))).severity is Severity.WARN


@pytest.mark.parametrize("kind", ["identity", ""])
def test_pass_through_and_no_iommu_are_fine(kind: str) -> None:
    node = with_device(pcie_node(), PciKind.GPU, iommu_type=kind)
    assert found(iommu_translates, gpu_case(nodes=(node,), **BOTH)) == ()


def test_nvlink_does_not_pass_the_iommu() -> None:
    node = with_device(pcie_node(("NV4",)), PciKind.GPU, iommu_type="DMA")
    assert found(iommu_translates, gpu_case(nodes=(node,), **BOTH)) == ()


def test_a_virtual_machine_has_an_iommu_of_its_own() -> None:
    node = with_device(pcie_node(system=system(hypervisor="kvm")), PciKind.GPU, iommu_type="DMA")
    assert found(iommu_translates, gpu_case(nodes=(node,), **BOTH)) == ()


def test_an_unreadable_group_skips_the_check() -> None:
    node = with_device(pcie_node(), PciKind.GPU, iommu_type=Gap("/sys/kernel: not there"))
    assert skips(iommu_translates, gpu_case(nodes=(node,), **BOTH))


@pytest.mark.parametrize(
    ("carrier", "env", "is_advised"),
    [
        ("0>1 via P2P/CUMEM", (), False),
        ("0>1 via SHM/direct/direct", (), True),
        ("0>1 via P2P/CUMEM", (("NCCL_P2P_LEVEL", "NVL"),), True),
    ],
)
def test_once_data_were_verified_over_pcie_nothing_advises_to_switch_it_off(
    carrier: str, env: tuple[tuple[str, str], ...], is_advised: bool
) -> None:
    node = with_device(pcie_node(), PciKind.GPU, iommu_type="DMA")
    tried = trial(transport=(carrier,), env=env)
    finding = only(found(iommu_translates, gpu_case(tried, nodes=(node,), **BOTH)))
    assert ("NCCL_P2P_DISABLE" in finding.workaround) is is_advised
    assert "iommu=pt" in finding.fix and "NCCL_" not in finding.fix
