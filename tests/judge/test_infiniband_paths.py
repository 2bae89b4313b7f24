"""Which path over InfiniBand a failed trial names: both ends, as NCCL's own lines have them, and no node."""

from __future__ import annotations

from dataclasses import replace

from preflight.judge.check import Case
from preflight.judge.infiniband_paths import failed_paths, faulty_end, paths_text
from preflight.judge.run.trial_as_is_failed import trial_failed
from preflight.model.facts import NodeFacts
from preflight.model.finding import Blame
from preflight.model.hca import PORT_ERRORS, Gid, PortCounter, PortErrors
from preflight.model.trial import LogLine, Outcome, RankEnd, TrialResult
from tests.node_facts import gpu_case, gpu_node, result, trial
from tests.search.settings.test_internode import port

PREFIX = "[2026-11-25 16:22:33] node1:95:117 [0] transport/net_ib.cc:2453 NCCL WARN "
LOST = "NET/IB: Got completion from peer {}<48478> with status=12 opcode=0 len=0 vendor err 129 (Recv) "
ROCE = LOST.format("10.79.0.2") + "localGid ::ffff:192.168.10.1 remoteGids::ffff:192.168.10.2 hca mlx5_0"
REFUSED = (
    "Call to ibv_modify_qp failed with {}, on dev mlx5_0:1, curr state INIT, next state RTR, local GID index {}, "
    "local GID {}, remote GID {}"
)


def node_of(number: int) -> NodeFacts:
    gids = (Gid(3, f"0000:0000:0000:0000:0000:ffff:c0a8:0a0{number + 1}", "RoCE v2", "eth1"),)
    made = gpu_node(hca_ports=(replace(port("mlx5_0"), gids=gids),))
    assert isinstance(made.netifs, tuple)
    netif = replace(made.netifs[0], addresses=(f"10.79.0.{number + 1}/24",))
    return replace(made, host=f"node{number}", netifs=(netif,))


CASE = gpu_case(nodes=(node_of(0), node_of(1)), gpus_by_node=((0, 1), (0, 1)))


def failed(*said: tuple[int, str], outcome: Outcome = Outcome.HANG, ended: str = "killed") -> TrialResult:
    logs: dict[int, list[LogLine]] = {}
    for rank, line in said:
        logs.setdefault(rank, []).append(LogLine(33, PREFIX + line))
    ranks = (RankEnd(k, ended, "first", "", log_file="nccl/0.log", log=tuple(logs.get(k, ()))) for k in range(4))
    return trial(outcome=outcome, ranks=tuple(ranks), problem="all 4 ranks hung at the first collective")


def text_of(case: Case, tried: TrialResult) -> str:
    paths = failed_paths(case, tried)
    return paths_text(paths, faulty_end(case, tried, paths))


def test_a_lost_transfer_names_both_ends_by_the_gid_of_the_peer() -> None:
    (path,) = failed_paths(CASE, failed((0, ROCE), (0, ROCE)))
    assert (path.end, path.peer) == ("node0 mlx5_0", "node1 mlx5_0")
    assert path.evidence().value == "node0 mlx5_0 to node1 mlx5_0: its data were not acknowledged (status 12)"
    assert paths_text([path], None) == "no data passed between node0 mlx5_0 and node1 mlx5_0"


def test_without_gids_the_peer_is_known_by_its_address_and_each_end_by_its_own_word() -> None:
    lines = [(rank, LOST.format(address) + "hca mlx5_0") for rank, address in ((0, "10.79.0.2"), (2, "10.79.0.1"))]
    paths = failed_paths(CASE, failed(*lines))
    assert [(path.end, path.peer) for path in paths] == [("node0 mlx5_0", "node1"), ("node1 mlx5_0", "node0")]
    unknown = failed_paths(CASE, failed((0, LOST.format("10.0.0.9") + "hca mlx5_0")))
    assert unknown[0].peer == "10.0.0.9"


def test_a_refused_connection_says_which_error_that_was_and_whose() -> None:
    no_answer = REFUSED.format("110 Connection timed out", 3, "::ffff:192.168.10.1", "::ffff:192.168.10.2")
    assert text_of(CASE, failed((0, no_answer))) == ("no data passed between node0 mlx5_0 and node1 mlx5_0")
    no_address = REFUSED.format("61 No data available", 7, "::", "::")
    assert text_of(CASE, failed((2, no_address))) == ("node1 mlx5_0 was refused: GID index 7 has no address (error 61)")


def test_if_a_rank_died_its_peers_words_name_no_path() -> None:
    assert not failed_paths(CASE, failed((0, ROCE), outcome=Outcome.CRASH, ended="signal"))
    assert not failed_paths(CASE, failed((0, ROCE), outcome=Outcome.OK))


def test_the_finding_begins_with_the_path_and_blames_no_node() -> None:
    (finding,) = trial_failed.judge(replace(CASE, trials=(failed((0, ROCE)),), world_size=4))
    assert finding.problem.startswith("no data passed between node0 mlx5_0 and node1 mlx5_0: all 4 ranks hung")
    assert finding.blame is Blame.CONFIGURATION and "both ends" in finding.fix
    assert "status 12" in finding.evidence[0].value


def test_of_three_nodes_the_end_at_which_all_paths_failed_is_likely_at_fault() -> None:
    case = replace(CASE, nodes=(node_of(0), node_of(1), node_of(2)), gpus_by_node=((0,), (1,), (0,)))
    said = [
        (rank, LOST.format(f"10.79.0.{peer + 1}") + "hca mlx5_0") for rank, peer in ((0, 1), (1, 0), (1, 2), (2, 1))
    ]
    assert text_of(case, failed(*said)).startswith("node1 mlx5_0 is likely at fault")
    assert text_of(case, failed(*said[:2])) == "no data passed between node0 mlx5_0 and node1 mlx5_0"
    everywhere = [*said, (0, LOST.format("10.79.0.3") + "hca mlx5_0")]
    assert "likely" not in text_of(case, failed(*everywhere))


def test_ranks_of_one_node_that_meet_over_its_adapters_are_of_that_node() -> None:
    case = replace(CASE, nodes=(node_of(0),), gpus_by_node=(), gpus=(0, 1))
    lost = LOST.format("10.79.0.1") + "hca mlx5_{}"
    paths = failed_paths(case, failed((0, lost.format(0)), (1, lost.format(1))))
    assert paths_text(paths, None) == "no data passed between ranks of node0 mlx5_0/mlx5_1"


def test_where_only_sockets_work_between_two_nodes_neither_is_blamed() -> None:
    sockets = trial("NCCL_IB_DISABLE=1", env=(("NCCL_IB_DISABLE", "1"),), results=(result(),))
    (finding,) = trial_failed.judge(replace(CASE, trials=(failed((0, ROCE)), sockets), world_size=4))
    assert finding.blame is Blame.CONFIGURATION


LINK, PATH = PortCounter("link_downed", 1), PortCounter("local_ack_timeout_err", 24)


def counted(*errors: PortErrors) -> TrialResult:
    return replace(failed((0, ROCE)), port_errors=errors)


def test_the_end_whose_own_link_counted_errors_is_likely_at_fault() -> None:
    tried = counted(PortErrors(0, "mlx5_0:1", (PATH,)), PortErrors(2, "mlx5_0:1", (LINK, PATH)))
    assert text_of(CASE, tried) == (
        "node1 mlx5_0 is likely at fault, because its own link counted errors during the trial (link_downed +1)"
    )
    (finding,) = trial_failed.judge(replace(CASE, trials=(tried,), world_size=4))
    said = {each.what: each.value for each in finding.evidence}
    assert said["RDMA port node0 mlx5_0:1"] == "local_ack_timeout_err +24 (packets were not acknowledged)"
    assert said["RDMA port node1 mlx5_0:1"].startswith("link_downed +1 (the link went down), ")
    assert "Then check node1 mlx5_0: " in finding.fix and finding.blame is Blame.CONFIGURATION


def test_errors_of_the_path_of_both_ends_or_of_another_port_blame_no_end() -> None:
    both = (PortErrors(0, "mlx5_0:1", (LINK,)), PortErrors(2, "mlx5_0:1", (LINK,)))
    for errors in ((PortErrors(2, "mlx5_0:1", (PATH,)),), both, (PortErrors(2, "mlx5_7:1", (LINK,)),)):
        assert text_of(CASE, counted(*errors)) == "no data passed between node0 mlx5_0 and node1 mlx5_0"


def test_a_counter_that_is_not_known_here_is_left_out() -> None:
    tried = counted(PortErrors(0, "mlx5_0:1", (PortCounter("of_a_later_release", 5),)))
    assert text_of(CASE, tried).startswith("no data passed") and "of_a_later_release" not in PORT_ERRORS
    (finding,) = trial_failed.judge(replace(CASE, trials=(tried,), world_size=4))
    assert not [each for each in finding.evidence if each.what.startswith("RDMA port")]


def test_a_peer_of_which_only_the_host_is_known_is_named_by_its_own_counter() -> None:
    tried = replace(
        failed((0, LOST.format("10.79.0.2") + "hca mlx5_0")), port_errors=(PortErrors(2, "mlx5_0:1", (LINK,)),)
    )
    assert text_of(CASE, tried).startswith("node1 mlx5_0 is likely at fault, because its own link counted errors")
