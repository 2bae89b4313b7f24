from __future__ import annotations

from preflight.judge.run.netif_path import netif_same_address
from preflight.model.finding import Severity
from preflight.model.network_survey import NodeOffers, PathEnd
from tests.judge.findings import found, only
from tests.node_facts import case, failed_with, node
from tests.search.ways import between, nodes, offer

TWO = (node(host="n0"), node(host="n1"))
SAME = [NodeOffers(k, f"n{k}", (offer("docker0", "172.17.0.1"), offer("eth0", f"10.0.0.{k + 1}"))) for k in range(2)]


def ended(listed: list[NodeOffers]) -> object:
    return between(listed, lambda r: PathEnd.ITSELF if r.netif == "docker0" else PathEnd.OK)


def test_a_bridge_that_every_host_has_is_worth_a_note_while_the_job_works() -> None:
    finding = only(found(netif_same_address, case(nodes=TWO, between=ended(SAME))))
    assert (finding.severity, finding.subject) == (Severity.INFO, "docker0 on n0, n1")
    assert "172.17.0.1" in finding.problem


def test_where_the_default_failed_it_is_a_warning() -> None:
    failed = failed_with("connection refused")
    assert only(found(netif_same_address, case(failed, nodes=TWO, between=ended(SAME)))).severity is Severity.WARN


def test_addresses_that_differ_and_runs_on_one_node_are_silent() -> None:
    assert found(netif_same_address, case(nodes=TWO, between=between(nodes(2, "eth0"), lambda _: PathEnd.OK))) == ()
    assert found(netif_same_address, case()) == ()
