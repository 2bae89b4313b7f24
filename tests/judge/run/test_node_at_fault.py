from __future__ import annotations

from dataclasses import replace

from preflight.judge.check import Case
from preflight.judge.run.node_at_fault import node_at_fault
from preflight.model.finding import Blame, Severity
from preflight.model.gap import Gap
from preflight.model.isolation import (
    NO_ISOLATION,
    BadPath,
    GroupOutcome,
    GroupTrial,
    Isolation,
    IsolationRound,
    RouteKind,
    RouteTrial,
)
from preflight.model.trial import Outcome
from tests.judge.findings import found, only
from tests.node_facts import case, node

NODES = tuple(node(host=f"n{i:02}") for i in range(4))


def group(*nodes: int, observed: GroupOutcome, speed: float = 10.0, local_rank: int = -1) -> GroupTrial:
    if observed is GroupOutcome.DEAD:
        return GroupTrial(nodes, observed, Outcome.HANG, "rank 4 stuck", Gap("it did not work"), local_rank)
    return GroupTrial(nodes, observed, Outcome.OK, "", speed, local_rank)


def isolated(*groups: GroupTrial, **changes: object) -> Case:
    base = replace(NO_ISOLATION, why="the 4 nodes fail together", candidate="default", is_failing=True)
    record: Isolation = (
        replace(base, rounds=(IsolationRound("neighbours", groups, 1.0),), **changes)  # type: ignore[arg-type]
    )
    return case(nodes=NODES, isolation=record)


def test_without_rounds_nothing_is_said() -> None:
    assert found(node_at_fault, case(nodes=NODES)) == ()


def test_a_dead_node_is_named_with_those_that_it_fails_with_and_its_words() -> None:
    groups = (
        group(0, 1, observed=GroupOutcome.OK),
        group(0, 2, observed=GroupOutcome.DEAD),
        group(1, 2, observed=GroupOutcome.DEAD),
    )
    finding = only(found(node_at_fault, isolated(*groups, dead=(2,))))
    assert (finding.severity, finding.blame, finding.subject) == (Severity.FAIL, Blame.FABRIC, "n02")
    assert finding.problem == "n02 is dead: it fails with n00 and n01, although those nodes work with others"
    assert [each.value for each in finding.evidence] == ["hung: rank 4 stuck"] * 2


def test_a_node_at_less_than_half_the_speed_fails_and_a_third_less_warns() -> None:
    for speed, severity in ((4.0, Severity.FAIL), (6.6, Severity.WARN)):
        groups = (group(0, 1, observed=GroupOutcome.OK), group(0, 2, observed=GroupOutcome.SLOW, speed=speed))
        finding = only(found(node_at_fault, isolated(*groups, slow=(2,), is_failing=False)))
        assert finding.severity is severity
        assert (
            finding.problem == f"n02 is slow: {speed:.3g} GB/s at best with n00, which reaches 10 GB/s with other nodes"
        )


def test_a_bad_path_warns_and_accuses_neither_end() -> None:
    groups = (
        group(0, 1, observed=GroupOutcome.DEAD),
        group(0, 2, observed=GroupOutcome.OK),
        group(1, 3, observed=GroupOutcome.OK),
    )
    finding = only(found(node_at_fault, isolated(*groups, paths=(BadPath(0, 1),))))
    assert (finding.severity, finding.subject) == (Severity.WARN, "n00 and n01")


def test_who_could_not_be_told_is_said_and_fails_nobody() -> None:
    groups = (group(0, 1, observed=GroupOutcome.DEAD), group(2, 3, observed=GroupOutcome.DEAD))
    finding = only(
        found(node_at_fault, isolated(*groups, unresolved=(0, 1, 2, 3), ended_because="no new partner is left"))
    )
    assert finding.severity is Severity.INFO
    assert "n00, n01, n02, n03 remain undecided: no new partner is left" in finding.problem


def test_nodes_that_fail_only_all_together_are_told_so() -> None:
    finding = only(
        found(
            node_at_fault,
            isolated(group(0, 1, observed=GroupOutcome.OK), group(2, 3, observed=GroupOutcome.OK), ended_because="T"),
        )
    )
    assert finding.problem == "the 4 nodes fail together, and no node is identifiable as the cause: T"


def test_that_no_node_is_slow_needs_no_finding() -> None:
    assert (
        found(node_at_fault, isolated(group(0, 1, observed=GroupOutcome.OK), is_failing=False, ended_because="T")) == ()
    )


def test_the_one_rank_that_fails_by_itself_is_named() -> None:
    singles = tuple(
        group(2, 0, observed=GroupOutcome.DEAD if i == 3 else GroupOutcome.OK, local_rank=i) for i in range(4)
    )
    groups = (group(0, 2, observed=GroupOutcome.DEAD),)
    finding = only(found(node_at_fault, isolated(*groups, dead=(2,), rank_by_rank=singles)))
    assert finding.problem.endswith("only its local rank 3 shows this fault, so check that GPU, its NIC and its rail")


OK, SLOW, DEAD = GroupOutcome.OK, GroupOutcome.SLOW, GroupOutcome.DEAD
NOBODY = Gap("no two good nodes had ranks left to try it")


def way(name: str, observed: GroupOutcome, beside: GroupOutcome | None = None, speed: float = 10.0) -> RouteTrial:
    kind = RouteKind.PORT if ":" in name else RouteKind.NETIF
    other = NOBODY if beside is None else group(1, 3, observed=beside, local_rank=0)
    return RouteTrial(kind, name, name, group(2, 0, observed=observed, speed=speed, local_rank=0), other)


def problem_of(*routes: RouteTrial, **named: tuple[int, ...]) -> str:
    groups = (group(0, 1, observed=OK), group(0, 2, observed=SLOW if "slow" in named else DEAD, speed=1.0))
    return only(found(node_at_fault, isolated(*groups, by_route=routes, **named))).problem


def test_the_one_interface_that_fails_is_named_and_looked_at_first() -> None:
    groups = (group(0, 2, observed=DEAD),)
    finding = only(found(node_at_fault, isolated(*groups, dead=(2,), by_route=(way("eth0", DEAD), way("eth1", OK)))))
    assert finding.problem.endswith(
        "; over eth1 alone the node works with n00; over eth0 alone the node fails, so that interface, its cable or "
        "its switch port is at fault"
    )
    assert "check eth0 there, the cable and the switch port" in finding.fix
    shown = [(each.what, each.value) for each in finding.evidence[1:]]
    assert shown == [("n02 eth0 + n00 eth0", "hung: rank 4 stuck"), ("n02 eth1 + n00 eth1", "10 GB/s all_reduce")]


def test_a_node_that_fails_over_all_or_over_none_by_itself_is_told_so() -> None:
    every = problem_of(way("eth0", DEAD), way("eth1", DEAD), dead=(2,))
    assert every.endswith(
        "; over each of eth0, eth1 alone the node shows the same fault, so the node itself is at fault"
    )
    none = problem_of(way("eth0", OK), way("eth1", OK), dead=(2,))
    assert none.endswith("; over each of eth0, eth1 alone the node works with n00")


def test_what_fails_between_good_nodes_too_is_not_blamed() -> None:
    problem = problem_of(way("mlx5_9:1", DEAD, DEAD), way("mlx5_0:1", DEAD, OK), way("eth0", OK, OK), dead=(2,))
    assert "mlx5_9" not in problem
    assert problem.endswith("the node fails, so that RDMA port, its cable or its switch port is at fault")


def test_a_port_that_no_good_nodes_could_try_may_work_nowhere() -> None:
    problem = problem_of(way("mlx5_0:1", DEAD), way("eth0", DEAD), way("eth1", OK), dead=(2,))
    assert "over each of mlx5_0:1, eth0 alone the node fails, so those interfaces and RDMA ports, their" in problem
    assert problem.endswith("unless the port works on no node (too few good nodes were left to test this)")


def test_one_way_or_what_the_deadline_cut_says_nothing() -> None:
    assert problem_of(way("eth0", DEAD), dead=(2,)).endswith("although that node works with others")
    cut = way("eth1", GroupOutcome.UNTRIED)
    assert problem_of(way("eth0", DEAD), cut, dead=(2,)).endswith("although that node works with others")


def test_a_slow_interface_is_told_beside_good_nodes_only() -> None:
    problem = problem_of(way("eth0", SLOW, OK, speed=1.0), way("eth1", OK, OK), slow=(2,))
    assert "over eth1 alone the node works with n00; over eth0 alone the node is slow, so that interface" in problem
    solo = problem_of(way("eth0", OK, speed=0.1), way("eth1", OK), slow=(2,))
    assert solo.endswith("which reaches 10 GB/s with other nodes")
