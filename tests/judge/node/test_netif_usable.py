from __future__ import annotations

from typing import Any

import pytest

from preflight.judge.node.netif_usable_hostname import netif_usable
from preflight.model.facts import Gap, NetifKind
from preflight.model.finding import Blame, Severity
from tests.judge.findings import found, on, only
from tests.node_facts import LO, case, contained, failed_with, netif, node


def test_one_interface_with_carrier_and_address_is_enough() -> None:
    assert on(netif_usable, node()) == ()


def test_only_lo_is_a_warning_on_one_node() -> None:
    assert only(on(netif_usable, node(netifs=(LO,)))).severity is Severity.WARN


def test_only_lo_fails_on_several_nodes() -> None:
    finding = only(found(netif_usable, case(nodes=(node(netifs=(LO,)), node(host="node2")))))
    assert (finding.severity, finding.blame) == (Severity.FAIL, Blame.HOST)
    assert finding.subject.startswith("node1")


def test_only_lo_in_a_container_is_the_containers_fault() -> None:
    assert only(on(netif_usable, contained(node(netifs=(LO,))))).blame is Blame.CONTAINER


@pytest.mark.parametrize(
    "change",
    [
        {"is_up": False},
        {"has_carrier": False},
        {"addresses": ()},
        {"addresses": ("169.254.3.4", "fe80::1%eth0")},
        {"kind": NetifKind.CONTAINER},
    ],
)
def test_an_interface_that_can_carry_nothing_does_not_count(change: dict[str, Any]) -> None:
    assert only(on(netif_usable, node(netifs=(LO, netif(**change))))).severity is Severity.WARN


@pytest.mark.parametrize("change", [{"has_carrier": Gap("denied")}, {"addresses": Gap("denied")}])
def test_what_could_not_be_read_of_an_interface_is_no_reason_against_it(change: dict[str, Any]) -> None:
    assert on(netif_usable, node(netifs=(LO, netif(**change)))) == ()


def test_a_comma_in_a_name_is_worth_a_note() -> None:
    finding = only(on(netif_usable, node(netifs=(LO, netif(), netif("a,b")))))
    assert finding.severity is Severity.INFO
    assert "comma" in finding.problem


def test_no_interface_at_all_still_has_evidence() -> None:
    assert only(on(netif_usable, node(netifs=()))).evidence


def test_a_loopback_that_is_down_fails_the_run_that_failed_and_warns_otherwise() -> None:
    down = node(netifs=(netif("lo", kind=NetifKind.LOOPBACK, is_up=False, addresses=()), netif("eth0")))
    broken = case(failed_with("Unable to find interface for: [127.0.0.1]"), nodes=(down,))
    assert only(found(netif_usable, broken)).severity is Severity.FAIL
    assert only(found(netif_usable, case(nodes=(down,)))).severity is Severity.WARN
