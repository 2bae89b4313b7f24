"""Two nodes whose InfiniBand loses data, on the stand-in for NCCL: what cures them, and after how many trials."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.command import Command
from tests.netns import can_make_netns, make_nodes
from tests.nodes.cluster import Cluster, Ended

pytestmark = [pytest.mark.integration, pytest.mark.timeout(500)]
LIMITS = ("--stage-limit", "10", "--deadline", "300")
LOST = "lose:via=NET/IB"


@pytest.fixture
def run(command: Command, need: Callable[[str, bool, str], None]) -> Iterator[Callable[..., dict[int, Ended]]]:
    need("netns", can_make_netns(), "network namespaces need root and iproute2")
    with make_nodes(2) as nodes:
        cluster = Cluster(command, nodes)
        yield lambda *played: cluster.play(*played, *LIMITS)
        cluster.end()


def tried(ended: Ended) -> list[tuple[str, str]]:
    trials: list[dict[str, Any]] = ended.report["trials"]
    return [(each["candidate"], each["outcome"]) for each in trials]


def test_without_the_port_that_nccls_log_names_two_nodes_work_at_the_second_trial(run: Any) -> None:
    ended = run("h100x8", "0,1", f"{LOST},hca=mlx5_3")
    assert ended[0].code == ended[1].code == 0, ended[0].page
    assert tried(ended[0]) == [("default", "hang"), ("without hca mlx5_3:1", "ok")], "nothing that could only be slower"
    failed = next(each for each in ended[0].report["findings"] if each["check"] == "trial-failed")
    assert "[ib_broken]" in failed["problem"]
    for each in ended.values():
        assert each.report["advice"]["env"]["NCCL_IB_HCA"].startswith("=mlx5_0:1,mlx5_1:1,mlx5_2:1,mlx5_4:1")


def test_where_every_port_loses_data_sockets_work_by_the_third_trial_and_the_price_is_told(run: Any) -> None:
    ended = run("h100x8", "0,1", LOST)
    assert ended[0].code == ended[1].code == 0, ended[0].page
    ends = tried(ended[0])
    assert ends[0] == ("default", "hang") and ends[2] == ("NCCL_IB_DISABLE=1", "ok")
    assert ends[1][1] == "hang" and "hca" in ends[1][0]
    assert len(ends) <= 4
    for each in ended.values():
        assert each.report["advice"]["env"] == {"NCCL_IB_DISABLE": "1"}
        lines = each.report["advice"]["evidence"]["NCCL_IB_DISABLE"].splitlines()
        (told,) = [line for line in lines if line.startswith("Costs: ")]
        assert "the RDMA ports of a node are rated 425 GB/s. Sockets: all_reduce 1 MiB " in told
        assert told.endswith("no other transport worked.")
        assert "# Costs: TCP sockets carry the data in place of RDMA" in each.env
        assert "Costs: TCP sockets" in each.page


def test_with_one_port_sockets_are_tried_at_once(run: Any) -> None:
    ended = run("l20x10", "0,1", LOST)
    assert ended[0].code == ended[1].code == 0, ended[0].page
    assert tried(ended[0]) == [("default", "hang"), ("NCCL_IB_DISABLE=1", "ok")]
    assert "export NCCL_IB_DISABLE='1'" in ended[1].env
