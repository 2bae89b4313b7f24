from __future__ import annotations

import pytest

from preflight.judge.node.netif_usable_hostname import hostname_loopback
from preflight.model.facts import Gap, NameResolution, NodeFacts
from preflight.model.finding import Severity
from preflight.model.trial import Outcome
from tests.judge.findings import found, on, only, skips
from tests.node_facts import case, env, gpu_case, netif, node, trial


def resolving_to(*addresses: str) -> NodeFacts:
    return node(name_resolution=NameResolution("node1", addresses))


def two(first: NodeFacts) -> tuple[NodeFacts, NodeFacts]:
    return first, node(host="node2", name_resolution=NameResolution("node2", ("10.0.0.5",)))


@pytest.mark.parametrize("address", ["127.0.1.1", "127.0.0.1", "::1"])
def test_loopback_is_worth_a_note_on_one_node_as_stock_debian_has_it(address: str) -> None:
    assert only(on(hostname_loopback, resolving_to(address))).severity is Severity.INFO


def test_an_address_of_this_host_is_fine() -> None:
    assert on(hostname_loopback, resolving_to("10.0.0.5")) == ()


def test_a_link_local_address_with_its_zone_is_recognised() -> None:
    assert on(hostname_loopback, resolving_to("fe80::5%eth0")) == ()


def test_gloo_binds_to_the_first_address_so_only_that_one_counts() -> None:
    assert on(hostname_loopback, resolving_to("10.0.0.5", "127.0.1.1")) == ()


@pytest.mark.parametrize("addresses", [(), ("192.0.2.7",)])
def test_a_name_that_leads_nowhere_is_a_warning_on_one_node(addresses: tuple[str, ...]) -> None:
    assert only(on(hostname_loopback, resolving_to(*addresses))).severity is Severity.WARN


def test_no_address_is_called_foreign_while_an_interface_could_not_be_read() -> None:
    facts = node(netifs=(netif(addresses=Gap("denied")),), name_resolution=NameResolution("node1", ("192.0.2.7",)))
    assert on(hostname_loopback, facts) == ()


def test_loopback_fails_gloo_on_several_nodes_and_the_fix_names_the_variable() -> None:
    hung = trial(outcome=Outcome.INIT_ERROR)
    finding = only(found(hostname_loopback, case(hung, nodes=two(resolving_to("127.0.1.1")))))
    assert finding.severity is Severity.FAIL
    assert "GLOO_SOCKET_IFNAME=eth0" in finding.fix
    assert "10.0.0.5 node1" in finding.fix
    assert "/etc/hosts" in finding.fix


def test_loopback_is_a_warning_on_several_nodes_where_it_evidently_did_not_break() -> None:
    assert only(found(hostname_loopback, case(trial(), nodes=two(resolving_to("127.0.1.1"))))).severity is Severity.WARN


def test_loopback_is_a_warning_where_gloo_is_told_its_interface() -> None:
    facts = node(environment=env(GLOO_SOCKET_IFNAME="eth0"))
    assert only(found(hostname_loopback, case(trial(outcome=Outcome.HANG), nodes=two(facts)))).severity is Severity.WARN


def test_loopback_is_a_warning_for_nccl_on_several_nodes() -> None:
    finding = only(found(hostname_loopback, gpu_case(trial(outcome=Outcome.HANG), nodes=two(node()))))
    assert finding.severity is Severity.WARN


def test_a_lookup_that_did_not_answer_skips_the_check() -> None:
    assert (
        skips(hostname_loopback, case(nodes=(node(name_resolution=Gap("no answer in 2 s")),)))[0].reason
        == "no answer in 2 s"
    )


def test_an_interface_with_a_hostile_name_is_not_put_into_a_command() -> None:
    hostile = node(netifs=(netif("$(reboot)"),))
    assert "reboot" not in only(on(hostname_loopback, hostile)).fix
