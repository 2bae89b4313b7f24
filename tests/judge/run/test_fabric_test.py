"""The site's own results of ib_write_bw beside the rates of this node's ports."""

from __future__ import annotations

from typing import Any

import pytest

from preflight.judge.check import Case
from preflight.judge.run.fabric_test import fabric_test
from preflight.model.facts import Gap, PciKind, known
from preflight.model.finding import Severity
from preflight.model.hca import HcaPort
from preflight.model.perftest import LinkTest
from tests.judge.findings import applies_not, found, only, skips
from tests.node_facts import gpu_case, gpu_node
from tests.topology import device, nic, port

GOOD, SLOW = 392.0, 120.0


ROOT = "0000:17:00.0"


def given(
    *tests: LinkTest,
    ports: tuple[HcaPort, ...] = (port(), port("mlx5_1")),
    slot: dict[str, Any] = {},  # noqa: B006  not changed
    **link: Any,
) -> Case:
    nics = (nic(), nic("mlx5_1", bdf="0000:19:00.0"))
    pci = tuple(device(known(each.bdf), PciKind.NIC, (ROOT,), **link) for each in nics)
    pci += (device(ROOT, PciKind.ROOT_PORT, **slot),)
    return gpu_case(nodes=(gpu_node(nics=nics, hca_ports=ports, pci=pci),), fabric=tests)


def link(device: str = "mlx5_0", gbit_s: float = GOOD, **overrides: Any) -> LinkTest:
    made = {"port": 1, "size_bytes": 65536, "is_bidirectional": False, **overrides}
    return LinkTest(device=device, gbit_s=gbit_s, **made)


def test_a_port_far_below_its_rate_is_a_warning_with_both_figures() -> None:
    finding = only(found(fabric_test, given(link(), link("mlx5_1", SLOW))))
    assert finding.severity is Severity.WARN and finding.subject.endswith("mlx5_1:1")
    assert "120 of 400 Gbit/s of the port's rate (30%)" in finding.problem


@pytest.mark.parametrize(
    "tests",
    [
        (link(), link("mlx5_1")),
        (link(gbit_s=SLOW), link(), link("mlx5_1")),
        (link(gbit_s=2 * GOOD, is_bidirectional=True), link("mlx5_1")),
    ],
    ids=["near the rate", "the best one counts", "both directions"],
)
def test_ports_that_reach_their_rate_are_fine(tests: tuple[LinkTest, ...]) -> None:
    assert found(fabric_test, given(*tests)) == ()


def test_both_directions_together_are_not_taken_for_one() -> None:
    assert (
        "196 of 400"
        in only(found(fabric_test, given(link(gbit_s=GOOD, is_bidirectional=True), link("mlx5_1")))).problem
    )


def test_an_adapter_whose_pcie_link_is_slower_than_its_port_is_held_against_the_link() -> None:
    """As on a DGX Spark: 200 Gbit/s behind four lanes, which carry some 100."""
    sparks = (port(rate_gbit_s=200.0), port("mlx5_1", rate_gbit_s=200.0))
    four = {"width_max": 4}
    assert found(fabric_test, given(link(gbit_s=96.0), link("mlx5_1", 96.0), ports=sparks, slot=four, width=4)) == ()
    assert (
        "PCIe link can carry"
        in only(
            found(fabric_test, given(link(gbit_s=50.0), link("mlx5_1", 96.0), ports=sparks, slot=four, width=4))
        ).problem
    )
    unread = given(link(gbit_s=50.0), ports=sparks, width_max=Gap("no file"))
    assert "PCIe link" in skips(fabric_test, unread)[0].reason


def test_an_old_slot_is_no_fault_of_the_adapter_and_lanes_that_are_missing_are_one() -> None:
    old = given(link(gbit_s=107.0), link("mlx5_1", 107.0), slot={"speed_max_gt_s": 8.0}, speed_gt_s=8.0)
    assert found(fabric_test, old) == ()
    narrow = only(found(fabric_test, given(link(gbit_s=24.0), link("mlx5_1"), width=1)))
    assert "24 of 400" in narrow.problem and "runs x1" in narrow.problem
    emulated = {"speed_max_gt_s": 2.5, "width_max": 1}
    assert "40 of 400" in found(fabric_test, given(link(gbit_s=40.0), link("mlx5_1"), slot=emulated))[0].problem


def test_the_program_that_ran_is_named() -> None:
    assert (
        "ib_read_bw reached 120"
        in only(found(fabric_test, given(link(gbit_s=SLOW, program="ib_read_bw"), link("mlx5_1")))).problem
    )


def test_a_good_result_of_small_messages_hides_no_slow_large_one() -> None:
    small = link(size_bytes=32768, gbit_s=GOOD)
    assert only(found(fabric_test, given(small, link(gbit_s=SLOW), link("mlx5_1")))).severity is Severity.WARN


def test_without_results_there_is_nothing_to_judge() -> None:
    assert "--fabric" in applies_not(fabric_test, given())


@pytest.mark.parametrize(
    ("test", "why"),
    [
        (link("mlx5_7"), "does not have"),
        (link("mlx5_1", size_bytes=4096, gbit_s=9.0), "below 64 KiB only"),
        (link("mlx5_1", size_bytes=0, gbit_s=0.0), "mlx5_1:1 has no result"),
        (link(), "has no test of mlx5_1:1"),
    ],
)
def test_another_nodes_device_and_small_messages_prove_nothing(test: LinkTest, why: str) -> None:
    assert why in skips(fabric_test, given(link(), test))[0].reason
