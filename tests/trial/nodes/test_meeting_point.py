"""At which address node 0 listens."""

from __future__ import annotations

import pytest

from preflight.model.facts import NetifKind
from preflight.trial.nodes.meeting_point import listening_addresses, netif_of, resolve
from tests.node_facts import netif

LO = netif("lo", kind=NetifKind.LOOPBACK, addresses=("127.0.0.1", "::1"))
ETH0 = netif("eth0", addresses=("10.0.0.1", "fe80::1"))
IB0 = netif("ib0", kind=NetifKind.IPOIB, addresses=("10.1.0.1",))
DOCKER = netif("docker0", kind=NetifKind.CONTAINER, addresses=("172.17.0.1",))
DOWN = netif("eth9", is_up=False, addresses=("10.9.0.1",))
ALL = (LO, ETH0, IB0, DOCKER, DOWN)


def test_it_listens_where_the_name_points_and_nowhere_else() -> None:
    assert listening_addresses("n1", ("10.1.0.1",), ALL).addresses == ("10.1.0.1",)
    assert listening_addresses("10.0.0.1", ("10.0.0.1",), ALL).addresses == ("10.0.0.1",)


@pytest.mark.parametrize("resolved", [("127.0.1.1",), ("203.0.113.9",), ()])
def test_a_name_that_points_elsewhere_leaves_every_address_that_others_could_reach(resolved: tuple[str, ...]) -> None:
    found = listening_addresses("n1", resolved, ALL)
    assert found.addresses[:2] == ("10.0.0.1", "10.1.0.1")
    assert not {"172.17.0.1", "10.9.0.1", "", "fe80::1"} & set(found.addresses)
    assert "n1" in found.why


def test_a_trap_is_called_loopback_and_serves_the_processes_of_the_same_host_too() -> None:
    found = listening_addresses("n1", ("127.0.1.1",), ALL)
    assert found.addresses[-1] == "127.0.1.1"
    assert "a loopback address" in found.why


def test_loopback_that_was_asked_for_is_no_trap() -> None:
    assert listening_addresses("127.0.0.1", ("127.0.0.1",), ALL).addresses == ("127.0.0.1",)
    assert listening_addresses("localhost", ("127.0.0.1",), ALL).addresses == ("127.0.0.1",)


def test_all_interfaces_only_where_nothing_else_is_known_and_it_is_said() -> None:
    found = listening_addresses("n1", (), ())
    assert found.addresses == ("",)
    assert "all interfaces" in found.why


def test_the_interface_of_an_address_is_never_loopback() -> None:
    assert netif_of("10.1.0.1", ALL) == "ib0"
    assert netif_of("127.0.0.1", ALL) == ""
    assert netif_of("10.3.0.1", ALL) == ""


def test_an_address_needs_no_resolver_and_an_unknown_name_is_named() -> None:
    assert resolve("10.0.0.9", 1).addresses == ("10.0.0.9",)
    found = resolve("no-such-host.invalid", 5)
    assert found.addresses == ()
    assert "no-such-host.invalid" in found.problem
