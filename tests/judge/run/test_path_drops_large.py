from __future__ import annotations

from preflight.judge.run.netif_path import path_drops_large
from preflight.model.finding import Severity
from preflight.model.network_survey import PathEnd
from tests.judge.findings import found, only
from tests.node_facts import case, failed_with, node, trial
from tests.search.ways import between, nodes

TWO = (node(host="n0"), node(host="n1"))
NARROW = between(nodes(2, "eth1", "eth0"), lambda r: PathEnd.SMALL_ONLY if r.netif == "eth1" else PathEnd.OK)


def test_a_hop_with_a_smaller_mtu_is_a_warning_that_names_nodes_interface_mtu_and_how_to_find_it() -> None:
    finding = only(found(path_drops_large, case(nodes=TWO, between=NARROW)))
    assert (finding.severity, finding.subject) == (Severity.WARN, "eth1 between n0, n1")
    assert "MTU than eth1 (1500)" in finding.problem
    assert "ping -M do -s 1472 10.0.0.2" in finding.fix


def test_it_fails_where_nothing_works_and_warns_where_something_does() -> None:
    failed = failed_with("timed out")
    assert only(found(path_drops_large, case(failed, nodes=TWO, between=NARROW))).severity is Severity.FAIL
    assert only(found(path_drops_large, case(failed, trial("x"), nodes=TWO, between=NARROW))).severity is Severity.WARN


def test_ways_that_carry_everything_are_silent() -> None:
    assert found(path_drops_large, case(nodes=TWO, between=between(nodes(2, "eth0"), lambda _: PathEnd.OK))) == ()
    assert found(path_drops_large, case()) == ()
