"""Where all ranks wait alike: what RAS, the recorder, sockets and GPUs tell, and what a long step is not called."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from preflight.model.gap import Gap
from preflight.model.stuck import Reason
from preflight.model.stuck_evidence import (
    Connection,
    Frame,
    GpuState,
    RankProcess,
    RasAnswer,
    RasRank,
    RecordedLag,
    ThreadState,
)
from preflight.stuck.judge.answer import answer
from tests.stuck.evidence import JOB, NONE, four, node, process, rank

LESS = RasRank(3, 9, "b", "has launched 9 AllReduce operations, others 10")
NO = RasRank(1, 0, "", "does not answer")


def test_unacknowledged_bytes_name_the_broken_way() -> None:
    broken = Connection("10.0.0.1:4000", "10.0.0.2:5000", "ESTABLISHED", 8192, 0, 7)
    report = answer([four(rank(1, process(101, connections=(broken,))))])
    (culprit,) = report.culprits
    assert (culprit.reason, culprit.ranks) == (Reason.PATH_BROKEN, (1,))
    assert "from 10.0.0.1, rank 1 (n0) at 10.0.0.2 (8192 bytes" in culprit.what


@pytest.mark.parametrize(
    ("parts", "ranks", "words"),
    [
        (
            {"ras": RasAnswer("localhost:28028", "2.27.5", "", (), (LESS,), False)},
            (3,),
            "NCCL's RAS, rank 3 (process 9 on b) has launched 9",
        ),
        (
            {"ras": RasAnswer("localhost:28028", "2.27.5", "", (NO,), (), False)},
            (1,),
            "according to NCCL's RAS, rank 1 does not answer",
        ),
        (
            {"recorded": RecordedLag(("2",), "has enqueued 6")},
            (2,),
            "according to the flight recorder, rank 2 has enqueued 6",
        ),
    ],
)
def test_ras_and_the_flight_recorder_tell_ranks_apart_that_look_alike(
    parts: dict[str, Any], ranks: tuple[int, ...], words: str
) -> None:
    (culprit,) = answer([node(*(rank(i) for i in range(4)), **parts)]).culprits
    assert culprit.ranks == ranks and words in culprit.what


ITEM = (Frame("train", JOB, 212),)  # loss.item(): a native call leaves no frame


def reads_loss(number: int, state: str = "R", *, wakes: int = 0, earlier: tuple[Frame, ...] = ITEM) -> RankProcess:
    """Return a rank with a group of NCCL's that reads its loss from the GPU, busily as CUDA does."""
    asleep_s = 0.0 if state == "R" else 60.0
    main = ThreadState(100 + number, "python", state, "" if state == "R" else "futex_do_wait", 0.0, wakes, asleep_s)
    own = process(100 + number, ITEM, main, earlier=earlier)
    watchdog = ThreadState(300 + number, "pt_nccl_watchdg", "S", "futex_do_wait", 0.0, 20, 0.1)
    return rank(number, dataclasses.replace(own, threads=(main, watchdog)))


def gpu(power_w: float) -> tuple[GpuState, ...]:
    return (GpuState(0, "GPU-0", 100.0, power_w, 700.0, 1980.0),)


@pytest.mark.parametrize("state", ["R", "S"])
def test_ranks_that_all_wait_for_gpus_which_do_not_compute_hang(state: str) -> None:
    level = RasAnswer("localhost:28028", "2.27.5", "", (), (), True)
    report = answer([node(*(reads_loss(i, state) for i in range(4)), gpus=gpu(120.0), ras=level)])
    (culprit,) = report.culprits
    assert (culprit.reason, culprit.ranks) == (Reason.NOTHING_MOVES, ())
    assert "all 4 ranks that were found wait for the GPU (train.py:212, train)" in culprit.what
    assert culprit.evidence == (
        "NCCL's RAS reaches all ranks, and all have launched the same operations (n0)",
        "no GPU computes: GPU 0 of n0 120 of 700 W",
    )


@pytest.mark.parametrize("gpus", [gpu(620.0), NONE])
def test_a_long_step_on_the_gpu_is_called_neither_a_hang_nor_a_job_that_goes_on(gpus: Any) -> None:
    report = answer([node(*(reads_loss(i) for i in range(4)), gpus=gpus)])
    assert (report.exit_code, report.culprits) == (3, ()) and "A long step looks the same as a hang" in report.summary


def test_a_rank_that_slept_meanwhile_does_not_wait_for_its_gpu() -> None:
    report = answer([node(*(reads_loss(i, wakes=40) for i in range(4)), gpus=gpu(120.0))])
    assert report.exit_code == 0


def test_a_job_of_which_ranks_were_not_looked_at_is_not_called_even() -> None:
    ranks = [dataclasses.replace(rank(i), world_size=8) for i in range(4)]
    assert answer([node(*ranks)]).exit_code == 3


def test_a_rank_that_only_ras_knows_is_named_with_its_node() -> None:
    gone = RasAnswer("localhost:28028", "2.27.5", "", (RasRank(5, 77, "10.0.0.9", "does not answer"),), (), False)
    ranks = [dataclasses.replace(rank(i), world_size=8) for i in range(4)]
    (culprit,) = answer([node(*ranks, ras=gone)]).culprits
    assert culprit.ranks == (5,) and "rank 5 (process 77 on 10.0.0.9) does not answer" in culprit.what


def test_both_ends_of_a_broken_way_are_named_by_their_ranks() -> None:
    there = Connection("10.0.0.1:4000", "10.0.0.2:5000", "ESTABLISHED", 28, 0, 3)
    back = Connection("10.0.0.2:5000", "10.0.0.1:4000", "ESTABLISHED", 0, 0, 0)
    first = node(rank(0, process(100, connections=(there,)), size=1), host="a")
    second = node(rank(1, process(101, connections=(back,)), size=1), host="b")
    (culprit,) = answer([first, second]).culprits
    assert (culprit.reason, culprit.ranks) == (Reason.PATH_BROKEN, (0, 1))
    assert "from 10.0.0.1, rank 0 (a) at 10.0.0.2, rank 1 (28 bytes" in culprit.what


def test_an_xid_is_a_hint_and_evidence_of_a_lost_gpu() -> None:
    xid = "NVRM: Xid (PCI:0000:1b:00): 79, pid=100, name=python, GPU has fallen off the bus."
    report = answer([node(*(rank(i) for i in range(4)), xid_lines=(xid,))])
    assert any(xid in hint for hint in report.hints) and report.culprits[0].reason is Reason.NOTHING_MOVES
    lost = Gap("NVMLError_GpuIsLost: the GPU has fallen off the bus or can't be reached")
    gpus = (GpuState(3, lost, lost, lost, lost, lost),)
    assert xid in answer([node(*(rank(i) for i in range(4)), gpus=gpus, xid_lines=(xid,))]).culprits[0].evidence
