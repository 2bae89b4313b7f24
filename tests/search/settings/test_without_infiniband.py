"""Between nodes whose InfiniBand fails: a set of ports is tried, then sockets, before anything else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from preflight.model.hca import Gid
from preflight.model.trial import DEFAULT, Candidate, LogLine, Outcome, RankEnd, TrialResult
from preflight.search.settings.candidates import DEFAULT_CANDIDATE
from preflight.search.settings.internode import between_nodes
from preflight.search.settings.search import next_step
from preflight.search.settings.steps import Known, Try
from tests.node_facts import result, trial
from tests.search.nodes.test_joint_plan import solo
from tests.search.searching import search
from tests.search.settings.test_internode import PLAIN, port

SOCKETS = {"NCCL_IB_DISABLE": "1"}
OVER_IB = ("0>1 via NET/IB/0", "network IB")
STATUS_12 = (
    "NCCL WARN NET/IB: Got completion from peer 10.0.0.2<41017> with status=12 opcode=0 len=0 vendor err 129 (Recv)"
)
TAKEN = "NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]; OOB eth0:10.0.0.1<0>"
Run = Callable[[Candidate], TrialResult]


def planned(*hcas: str, **overrides: Any) -> list[Candidate]:
    facts = replace(PLAIN, hca_ports=tuple(map(port, hcas)))
    nodes_of = {k: solo(f"n{k}", facts=facts, dialect="nccl", **overrides) for k in range(2)}
    return [DEFAULT_CANDIDATE, *between_nodes(nodes_of, None)]


def losing(*lost: str, hcas: tuple[str, ...], named: bool = True, transport: tuple[str, ...] = OVER_IB) -> Run:
    """Return a pair of nodes on which these ports lose data, and whose log may name the first of them in use."""

    def run(candidate: Candidate) -> TrialResult:
        env = dict(candidate.env)
        listed = env.get("NCCL_IB_HCA", "=" + ",".join(f"{hca}:1" for hca in hcas)).removeprefix("=").split(",")
        bad = [] if env.get("NCCL_IB_DISABLE") else [hca for hca in lost if f"{hca}:1" in listed]
        if not bad:
            return trial(candidate.name, env=candidate.env, results=(result(),))
        words = (LogLine(1, TAKEN), LogLine(2, f"{STATUS_12} hca {bad[0]}")) if named else (LogLine(1, TAKEN),)
        ranks = (RankEnd(0, "stuck", "first", "", log=words),)
        return trial(candidate.name, Outcome.HANG, env=candidate.env, ranks=ranks, transport=transport)

    return run


def tried(hcas: tuple[str, ...], run: Run, **known: Any) -> list[str]:
    return search((), run, planned(*hcas), known=Known(**known)).names


V2 = Gid(3, "0000:0000:0000:0000:0000:ffff:c0a8:0a01", "RoCE v2", "eth1")
TWO, FOUR = ("mlx5_0", "mlx5_1"), ("mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3")


def test_of_two_ports_the_one_that_the_log_does_not_name_is_tried_and_nothing_more() -> None:
    assert tried(TWO, losing("mlx5_0", hcas=TWO)) == [DEFAULT, "hca mlx5_1:1"]
    assert tried(TWO, losing("mlx5_1", hcas=TWO)) == [DEFAULT, "hca mlx5_0:1"]


def test_of_many_ports_all_but_the_one_that_the_log_names_are_tried_first() -> None:
    assert tried(FOUR, losing("mlx5_2", hcas=FOUR)) == [DEFAULT, "without hca mlx5_2:1"]


def test_where_every_port_loses_data_sockets_are_the_third_trial_and_one_more_set_of_ports_is_tried() -> None:
    found = search((), losing(*TWO, hcas=TWO), planned(*TWO))
    assert found.names == [DEFAULT, "hca mlx5_1:1", "NCCL_IB_DISABLE=1", "hca mlx5_0:1"]
    assert found.best == SOCKETS
    assert found.control.chosen == "NCCL_IB_DISABLE=1"


def test_without_time_for_the_control_no_further_set_of_ports_is_tried() -> None:
    run = losing(*TWO, hcas=TWO)
    default_s = run(DEFAULT_CANDIDATE).duration_s
    assert tried(TWO, run, left_s=4 * default_s) == [DEFAULT, "hca mlx5_1:1", "NCCL_IB_DISABLE=1"]


def test_with_one_port_sockets_are_the_second_trial() -> None:
    assert tried(("mlx5_0",), losing("mlx5_0", hcas=("mlx5_0",))) == [DEFAULT, "NCCL_IB_DISABLE=1"]


def test_a_hang_whose_log_names_no_port_tries_one_port_alone_as_data_went_over_infiniband() -> None:
    found = search((), losing("mlx5_1", hcas=TWO, named=False), planned(*TWO))
    assert found.names == [DEFAULT, "hca mlx5_0:1"]
    assert found.control.chosen == "hca mlx5_0:1"


def test_a_failure_that_says_nothing_of_infiniband_leaves_the_order_as_planned() -> None:
    candidates = planned(*TWO)
    run = losing(*TWO, hcas=TWO, named=False, transport=("network IB",))
    assert tried(TWO, run)[:3] == [each.name for each in candidates][:3]
    assert [each.name for each in candidates][1:3] == ["NCCL_CROSS_NIC=0", "NCCL_IB_QPS_PER_CONNECTION=4"]


def test_beside_a_default_that_works_nobody_tries_to_go_without_ports_or_rdma() -> None:
    candidates, names = planned(*TWO), []
    done: tuple[TrialResult, ...] = (trial(results=(result(),)),)
    while isinstance(step := next_step(candidates, True, (), Known(results=done)), Try):
        names.append(step.candidate.name)
        done += (trial(step.candidate.name, env=step.candidate.env, results=(result(),)),)
    assert names == ["NCCL_CROSS_NIC=0", "NCCL_IB_QPS_PER_CONNECTION=4"]


REFUSED = "NCCL WARN Call to ibv_modify_qp failed with {}, on dev mlx5_0:1, curr state INIT, next state RTR, "
GID_7 = REFUSED.format("61 No data available") + "local GID index 7, local GID ::, remote GID ::"
ADDRESSES = "local GID index 3, local GID ::ffff:192.168.10.1, remote GID ::ffff:192.168.{}.2"
ACROSS = REFUSED.format("110 Connection timed out") + ADDRESSES
NO_MEMORY = "NCCL WARN Call to ibv_reg_mr failed with error Cannot allocate memory"
BAD_ADDRESS = "NCCL WARN Call to ibv_reg_mr_iova2 failed with error Bad address"
BETWEEN = ("0>2 via NET/IB/0", "2>0 via NET/IB/0")
BY_GPU = ("0>2 via NET/IB/0/GDRDMA", "2>0 via NET/IB/0/GDRDMA")
INSIDE = ("0>1 via NET/IB/0", "1>2 via NET/IB/1")
POINTS_AT = {
    "a GID without an address": (GID_7, BETWEEN, Outcome.CRASH, "NCCL_IB_GID_INDEX=3"),
    "rails of two subnets": (ACROSS.format(11), BETWEEN, Outcome.CRASH, "NCCL_CROSS_NIC=0"),
    "one subnet": (ACROSS.format(10), BETWEEN, Outcome.CRASH, "hca mlx5_1:1"),
    "locked memory": (NO_MEMORY, BETWEEN, Outcome.CRASH, "NCCL_IB_DISABLE=1"),
    "GPU memory": (BAD_ADDRESS, BY_GPU, Outcome.CRASH, "NCCL_NET_GDR_LEVEL=LOC"),
    "wrong data of GPU memory": ("", BY_GPU, Outcome.WRONG_DATA, "NCCL_NET_GDR_LEVEL=LOC"),
    "wrong data of host memory": ("", BETWEEN, Outcome.WRONG_DATA, "hca mlx5_0:1"),
    "ranks of one node on two rails": (f"{STATUS_12} hca mlx5_0", INSIDE, Outcome.HANG, "NCCL_NET_DISABLE_INTRA=1"),
    "ranks of two nodes": (f"{STATUS_12} hca mlx5_0", BY_GPU, Outcome.HANG, "hca mlx5_1:1"),
}


@pytest.mark.parametrize("sign", POINTS_AT)
def test_the_log_of_the_failed_trial_decides_what_is_tried_first(sign: str) -> None:
    error, paths, outcome, first = POINTS_AT[sign]
    roce = tuple(replace(port(hca), gids=(V2,)) for hca in TWO)
    nodes_of = {k: solo(f"n{k}", facts=replace(PLAIN, hca_ports=roce), dialect="nccl", ranks=2) for k in range(2)}
    candidates = [DEFAULT_CANDIDATE, *between_nodes(nodes_of, None)]
    ranks = (RankEnd(0, "stuck", "first", "", log=(LogLine(1, error),) if error else ()),)
    failed = trial(DEFAULT, outcome, ranks=ranks, transport=paths)
    step = next_step(candidates, False, (), Known(results=(failed,), node_sizes=(2, 2)), runs_each=2)
    assert isinstance(step, Try) and step.candidate.name == first


def test_what_was_not_used_is_not_switched_off() -> None:
    candidates = planned(*TWO, ranks=2)
    names = search((), lambda each: losing(*TWO, hcas=TWO)(replace(each, env=())), candidates).names
    assert "NCCL_CROSS_NIC=0" in names, "sockets failed too, so everything else is tried as planned"
    assert not {"NCCL_NET_GDR_LEVEL=LOC", "NCCL_NET_DISABLE_INTRA=1"} & set(names)
    assert {"NCCL_NET_GDR_LEVEL=LOC", "NCCL_NET_DISABLE_INTRA=1"} < {each.name for each in candidates}


def test_at_most_eight_ports_are_tried_alone() -> None:
    alone = [each for each in planned(*(f"mlx5_{i}" for i in range(12))) if each.name.startswith("hca ")]
    assert len(alone) == 8
    assert dict(alone[0].env) == {"NCCL_IB_HCA": "=mlx5_0:1"}


@pytest.mark.parametrize(
    ("network", "setting"),
    [("IB", SOCKETS), ("AWS Libfabric", {"NCCL_NET": "Socket"})],
    ids=["NCCL's own", "a plugin's"],
)
def test_sockets_take_the_place_of_the_network_that_the_nodes_use(network: str, setting: dict[str, str]) -> None:
    used = (trial(transport=(f"network {network}",)),)
    last = planned("mlx5_0", trials=used)[-1]
    assert dict(last.env) == setting
    assert "the RDMA ports of a node are rated 50 GB/s" in last.reason


def test_nodes_without_an_active_port_have_nothing_to_go_without() -> None:
    assert [each.name for each in planned()] == [DEFAULT]
