"""What several nodes try together, from what each found alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from preflight.check.request import Request
from preflight.model.finding import Blame, Severity
from preflight.model.joint import SoloResult
from preflight.model.trial import AS_IS, DEFAULT, Outcome, Scope
from preflight.search.nodes.joint_plan import (
    ALONE,
    MEETING_NETIF,
    advice_here,
    advice_of_nodes,
    hosts_by_rank,
    plan_jointly,
    shared_candidates,
    why_not_joint,
    with_hosts,
)
from tests.node_facts import advice, finding, node, trial

QUICK = Request()


def solo(host: str, **overrides: Any) -> SoloResult:
    made = SoloResult(
        host=host, ranks=2, backend="gloo", dialect="gloo", is_cpu_path=True, problem="", trials=(), findings=(),
        skipped_checks=(), env=(), inherits_tuning=False, netif="eth0", free_bytes_per_rank=1 << 30, gpus=(),
        facts=node(),
    )  # fmt: skip
    return replace(made, **overrides)


def test_ranks_are_numbered_in_the_order_of_the_nodes() -> None:
    planned = plan_jointly({0: solo("a"), 1: solo("b", ranks=3), 2: solo("c")}, "10.0.0.1", 60, QUICK)
    assert [planned[rank].place.first_rank for rank in range(3)] == [0, 2, 5]
    assert {common.place.world_size for common in planned.values()} == {7}
    assert hosts_by_rank({0: solo("a"), 1: solo("b", ranks=3)}) == ("a", "a", "b", "b", "b")


def test_all_nodes_measure_the_same_and_what_fits_into_the_smallest() -> None:
    planned = plan_jointly({0: solo("a"), 1: solo("b", free_bytes_per_rank=5 << 10)}, "x", 60, QUICK)
    assert planned[0].trials.measures == planned[1].trials.measures
    assert max(measure.nominal_bytes for measure in planned[0].trials.measures) <= 1 << 10


def test_the_default_comes_first_and_each_node_sets_its_own_interface() -> None:
    planned = plan_jointly({0: solo("a", netif="ens3"), 1: solo("b", netif="ib0")}, "x", 60, QUICK)
    assert [each.name for each in planned[0].trials.candidates] == [DEFAULT, MEETING_NETIF]
    for node_rank, name in enumerate(("ens3", "ib0")):
        (own,) = planned[node_rank].trials.own_env
        assert dict(own.env) == {"GLOO_SOCKET_IFNAME": name, "NCCL_SOCKET_IFNAME": f"={name}", "TP_SOCKET_IFNAME": name}
    assert all(each.scope is Scope.ANYWHERE for each in planned[0].trials.candidates)


def test_an_interface_that_is_not_known_everywhere_is_no_candidate() -> None:
    assert [each.candidate.name for each in shared_candidates({0: solo("a"), 1: solo("b", netif="")})] == [DEFAULT]


def test_what_one_node_inherits_or_needs_is_tried_by_all_on_that_node() -> None:
    nodes = {0: solo("a", inherits_tuning=True), 1: solo("b", env=(("NCCL_P2P_DISABLE", "1"),))}
    found = {each.candidate.name: each for each in shared_candidates(nodes)}
    assert list(found) == [DEFAULT, AS_IS, MEETING_NETIF, ALONE]
    assert found[ALONE].candidate.env, "a candidate that sets nothing could never be recommended"
    assert dict(found[ALONE].env_of) == {0: (), 1: (("NCCL_P2P_DISABLE", "1"),)}


def test_nodes_that_fail_alone_are_not_tried_together_and_are_named() -> None:
    bad = solo("b", findings=(finding(Severity.FAIL, Blame.HOST),))
    assert "b (node 1) fails alone" in why_not_joint({0: solo("a"), 1: bad})
    assert "no torch" in why_not_joint({0: solo("a"), 1: solo("b", problem="no torch")})
    assert "gloo on a, nccl on b" in why_not_joint({0: solo("a"), 1: solo("b", backend="nccl")})
    harness = solo("b", findings=(finding(Severity.FAIL, Blame.HARNESS), finding(Severity.WARN)))
    assert why_not_joint({0: solo("a"), 1: harness}) == ""


def test_a_culprit_is_named_with_its_host() -> None:
    failed = trial(outcome=Outcome.HANG, culprits=(3,), problem="rank 3 stuck at first")
    assert with_hosts(failed, ("a", "a", "b", "b")).problem == "rank 3 stuck at first (rank 3 is on b)"
    assert with_hosts(trial(), ("a",)) == trial()


def test_the_advice_of_all_names_each_nodes_own_settings_where_they_differ() -> None:
    nodes = {0: solo("a", netif="ens3"), 1: solo("b", netif="ib0")}
    shared = next(each for each in shared_candidates(nodes) if each.candidate.name == MEETING_NETIF)
    won = trial(MEETING_NETIF, env=shared.candidate.env)
    learnt = advice(env=won.env, one_node_only=("NCCL_SOCKET_IFNAME",))
    found = advice_of_nodes(learnt, (won,), nodes)
    assert found.one_node_only == ()
    assert [each.host for each in found.nodes] == ["a", "b"]
    assert dict(advice_here(found, 1).env)["GLOO_SOCKET_IFNAME"] == "ib0"
    alike = {0: solo("a"), 1: solo("b")}
    same = next(each for each in shared_candidates(alike) if each.candidate.name == MEETING_NETIF).candidate.env
    assert advice_of_nodes(advice(env=same), (trial(MEETING_NETIF, env=same),), alike).nodes == ()
