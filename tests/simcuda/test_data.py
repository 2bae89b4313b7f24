"""The collectives move true data through NCCL's own connections, and faults are where real ones are."""

from __future__ import annotations

import pytest

from tests.simcuda.run import COLLECTIVES, transports

pytestmark = [pytest.mark.simcuda, pytest.mark.usefixtures("simcuda"), pytest.mark.heavy(2)]
# Sizes that fill no chunk evenly, that are less than a rank's share, and that take many turns of the ring buffers.
JOBS = (
    "all_reduce:1000003",
    "all_gather:77777",
    "reduce_scatter:77777",
    "broadcast:100001",
    "all_to_all:33333",
    "barrier:1",
    "all_to_all:5",
    "all_reduce:3",
)
ONE = COLLECTIVES[:1]


@pytest.mark.parametrize(
    "env",
    [{}, {"NCCL_P2P_DISABLE": "1"}, {"NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1"}, {"NCCL_PROTO": "LL"}],
    ids=["p2p", "shm", "sockets", "LL"],
)
def test_two_ranks_are_right_over_every_transport(env: dict[str, str]) -> None:
    wiring = transports("pcie2-pix", env=env, collectives=JOBS, data=True)
    assert wiring.right, wiring.log[-3000:]


@pytest.mark.parametrize("nodes", [1, 2])
def test_four_ranks_are_right_on_one_node_and_on_two(nodes: int) -> None:
    assert transports("pcie4-2numa", collectives=JOBS, data=True, nodes=nodes).right


def test_eight_ranks_are_right_on_nvswitch() -> None:
    env = {"NCCL_MAX_P2P_NCHANNELS": "4"}  # of 32: two cores carry eight ranks
    assert transports("h100x8", env=env, collectives=("all_reduce", "all_to_all:1000"), data=True, limit_s=90).right


def test_an_algorithm_that_is_not_simulated_is_refused_aloud() -> None:
    wiring = transports("pcie2-pix", env={"NCCL_ALGO": "Tree"}, collectives=ONE, data=True)
    assert wiring.results["all_reduce"] == (1, 1)  # ncclUnhandledCudaError
    assert any("AllReduce, algorithm 0" in line for line in wiring.refused)


def test_p2p_that_loses_bytes_hangs_and_shm_cures_it() -> None:
    lost = transports(
        "pcie2-pix", env={"SIMCUDA_P2P_LOSES": "0-1", "SIMCUDA_HANG_TOLD_S": "1"}, collectives=ONE, data=True, limit_s=4
    )
    assert lost.started is False and lost.timed_out and lost.results == {"init": (0, 0)}
    assert "HANGS" in lost.log and lost.transports == {"P2P"}
    cured = transports(
        "pcie2-pix", env={"SIMCUDA_P2P_LOSES": "0-1", "NCCL_P2P_DISABLE": "1"}, collectives=ONE, data=True
    )
    assert cured.right and cured.transports == {"SHM"}


def test_p2p_that_changes_bytes_gives_wrong_sums() -> None:
    wiring = transports("pcie2-pix", env={"SIMCUDA_P2P_CHANGES": "all"}, collectives=ONE, data=True)
    assert wiring.wrong is not None and wiring.wrong["all_reduce"] > 0


def test_only_the_pair_that_is_named_is_broken() -> None:
    env = {"SIMCUDA_P2P_LOSES": "0-1"}
    assert transports("pcie4-2numa", env=env, gpus=(2, 3), collectives=ONE, data=True).right
    assert transports("pcie4-2numa", env=env, gpus=(0, 1), collectives=ONE, data=True, limit_s=4).timed_out


def test_a_gpu_that_computes_wrong_gives_wrong_sums() -> None:
    wiring = transports("pcie2-pix", env={"SIMCUDA_GPU_WRONG": "1"}, collectives=ONE, data=True)
    assert wiring.wrong is not None and wiring.wrong["all_reduce"] > 0


def test_a_gpu_that_is_slow_is_slow_and_right() -> None:
    wiring = transports("pcie2-pix", env={"SIMCUDA_GPU_SLOW": "1:1500"}, collectives=ONE, data=True)
    assert wiring.right and wiring.seconds > 1.5


def test_a_way_that_is_slow_is_slow_in_one_direction_and_right() -> None:
    slow, other = (
        transports("pcie4-2numa", env={"SIMCUDA_WAY_SLOW": way}, collectives=("all_gather:300000",), data=True)
        for way in ("0>1:2", "1>0:2")  # NCCL's ring goes from 0 to 1
    )
    assert slow.right and other.right and slow.seconds > other.seconds + 0.3


def test_a_gpu_that_dies_fails_its_next_call() -> None:
    wiring = transports(
        "pcie2-pix", env={"SIMCUDA_GPU_DIES": "1:1"}, collectives=("all_reduce",) * 3, data=True, limit_s=4
    )
    assert 1 in wiring.results["all_reduce"] or wiring.timed_out
    assert "unspecified launch failure" in wiring.log or wiring.timed_out


def test_a_gpu_without_memory_fails_the_start() -> None:
    wiring = transports("pcie2-pix", env={"SIMCUDA_GPU_FULL": "1"}, collectives=ONE, data=True, limit_s=4)
    assert not wiring.started and any("out of memory" in warning for warning in wiring.warnings)
