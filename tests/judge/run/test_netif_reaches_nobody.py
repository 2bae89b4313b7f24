from __future__ import annotations

import pytest

from preflight.judge.run.netif_path import netif_reaches_nobody
from preflight.model.finding import Severity
from preflight.model.network_survey import PathEnd
from preflight.model.trial import DEFAULT
from tests.judge.findings import found, only
from tests.node_facts import case, failed_with, node, trial
from tests.search.ways import between, nodes

TWO = (node(host="n0"), node(host="n1"))


@pytest.mark.parametrize("end", [PathEnd.REFUSED, PathEnd.NO_ROUTE, PathEnd.DROPPED, PathEnd.STRANGER, PathEnd.FAILED])
def test_an_interface_from_which_nobody_is_reached_is_named_with_the_way_out(end: PathEnd) -> None:
    ways = between(nodes(2, "dead0", "eth0"), lambda r: end if r.netif == "dead0" else PathEnd.OK)
    finding = only(found(netif_reaches_nobody, case(nodes=TWO, between=ways)))
    assert (finding.subject, finding.severity) == ("dead0 on n0, n1", Severity.INFO)
    assert "the job can use eth0" in finding.problem
    assert len(finding.evidence) >= 2


def test_it_is_as_bad_as_what_it_broke() -> None:
    ways = between(nodes(2, "dead0", "eth0"), lambda r: PathEnd.DROPPED if r.netif == "dead0" else PathEnd.OK)
    failed = failed_with("timed out", candidate=DEFAULT)
    assert only(found(netif_reaches_nobody, case(failed, nodes=TWO, between=ways))).severity is Severity.FAIL
    cured = (failed, trial("netif that reaches all"))
    assert only(found(netif_reaches_nobody, case(*cured, nodes=TWO, between=ways))).severity is Severity.WARN


@pytest.mark.parametrize("end", [PathEnd.OK, PathEnd.ITSELF, PathEnd.SMALL_ONLY, PathEnd.UNTRIED])
def test_what_another_check_tells_or_nobody_saw_is_silent(end: PathEnd) -> None:
    assert found(netif_reaches_nobody, case(nodes=TWO, between=between(nodes(2, "eth0"), lambda _: end))) == ()


def test_one_pair_of_three_that_fails_is_not_nobody() -> None:
    ways = between(nodes(3, "eth0"), lambda r: PathEnd.DROPPED if r.to_node == 2 == 2 - r.from_node else PathEnd.OK)
    assert found(netif_reaches_nobody, case(nodes=TWO, between=ways)) == ()


def test_where_not_all_results_are_listed_nothing_is_proven() -> None:
    ways = between(nodes(2, "eth0"), lambda _: PathEnd.DROPPED, untold=5)
    assert found(netif_reaches_nobody, case(nodes=TWO, between=ways)) == ()
