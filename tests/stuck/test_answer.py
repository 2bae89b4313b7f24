"""The answer follows from recorded evidence alone: who holds up the job, why, and what could not be told."""

from __future__ import annotations

import dataclasses
import json

import jsonschema
import pytest

from preflight.model.codec import decode, encode
from preflight.model.gap import Gap
from preflight.model.schema import stuck_schema
from preflight.model.stuck import Activity, Reason, StuckReport, StuckVerdict
from preflight.model.stuck_evidence import (
    Frame,
    GpuState,
    HeldLock,
    OpenFile,
    Orphan,
    Process,
)
from preflight.show.stuck import stuck_page
from preflight.show.text import Detail, Style
from preflight.stuck.collect.stacks import READ_ONCE
from preflight.stuck.judge.answer import answer
from tests.stuck.evidence import ALL_REDUCE, C10D, SAVE, SITE, four, frames, node, process, rank, thread


def test_a_rank_in_a_save_is_named() -> None:
    report = answer([four(rank(2, process(102, SAVE, thread(102, "D", "nfs_wait_bit", 0.0))))])
    (culprit,) = report.culprits
    assert (report.verdict, report.exit_code, culprit.ranks) == (StuckVerdict.STUCK, 1, (2,))
    assert "writing a checkpoint: torch.save (train.py:52, save_checkpoint)" in report.summary
    assert report.summary.startswith("3 ranks wait in all_reduce (train.py:187, all_reduce_gradients), for 60 s")


def test_a_rank_whose_save_goes_on_is_named_with_file_and_rate_and_not_called_stuck() -> None:
    file = OpenFile(9, "/mnt/ckpt/model.pt", "nfs4", True, 6_000_000)
    report = answer([four(rank(2, process(102, SAVE, thread(102, "D", "nfs_wait_bit", 0.0), files=(file,))))])
    assert (report.verdict, report.exit_code, report.culprits) == (StuckVerdict.UNKNOWN, 3, ())
    assert report.summary.startswith("Not stuck yet: rank 2 on n0 is writing a checkpoint: torch.save (train.py:52, ")
    assert "writing to /mnt/ckpt/model.pt (nfs4) at 3.0 MB/s" in report.summary
    assert "3 other ranks wait. Wait, and rerun in a minute." in report.summary


def works(pid: int, *, cpu_s: float, earlier_line: int) -> Process:
    """Return a process found in line 71 after another look; the watch takes 2 s."""
    own = process(pid, frames(("prepare", "train.py", 71)), thread(pid, "R", "", 0.0),
                  earlier=frames(("prepare", "train.py", earlier_line)))  # fmt: skip
    return dataclasses.replace(own, threads=tuple(dataclasses.replace(each, cpu_s=cpu_s) for each in own.threads))


@pytest.mark.parametrize(
    ("cpu_s", "earlier_line", "verdict"),
    [(1.9, 68, StuckVerdict.UNKNOWN), (1.9, 71, StuckVerdict.STUCK), (0.1, 68, StuckVerdict.STUCK)],
    ids=("computes in changing lines", "computes in one line", "polls"),
)
def test_a_rank_works_if_it_computes_and_its_line_changes(
    cpu_s: float, earlier_line: int, verdict: StuckVerdict
) -> None:
    report = answer([four(rank(1, works(101, cpu_s=cpu_s, earlier_line=earlier_line)))])
    assert report.verdict is verdict
    assert "prepare (train.py:71)" in report.summary
    assert ("computes in changing lines (95% of a CPU)" in report.summary) == (verdict is StuckVerdict.UNKNOWN)


@pytest.mark.parametrize("stack", [ALL_REDUCE, frames(("item", "train.py", 9))])
def test_ranks_that_spin_and_were_read_only_once_are_not_called_sound(stack: tuple[Frame, ...]) -> None:
    spinning = dataclasses.replace(thread(100, "R", "", 0.0), cpu_s=2.0, wakes=0)
    ranks = []
    for number in range(4):
        own = process(100 + number, stack, dataclasses.replace(spinning, tid=100 + number))
        ranks.append(rank(number, dataclasses.replace(own, earlier_stacks=READ_ONCE)))
    assert answer([node(*ranks)]).verdict is StuckVerdict.UNKNOWN


def test_two_broadcasts_in_one_function_are_two_collectives_if_it_is_not_only_the_root_that_differs() -> None:
    calls = [frames(("broadcast", C10D, 3151), ("share", "train.py", line)) for line in (10, 10, 20, 20)]
    report = answer([node(*(rank(i, process(100 + i, stack)) for i, stack in enumerate(calls)))])
    assert report.culprits[0].reason is Reason.OTHER_COLLECTIVE


def test_a_rank_that_computes_and_was_read_only_once_is_not_called_stuck() -> None:
    own = dataclasses.replace(works(101, cpu_s=1.9, earlier_line=71), earlier_stacks=READ_ONCE)
    report = answer([four(rank(1, own))])
    assert report.verdict is StuckVerdict.UNKNOWN
    assert "computes in lines that were read only once (95% of a CPU)" in report.summary


def test_a_rank_that_stands_is_named_though_another_works() -> None:
    sleeps = process(103, frames(("pause", "train.py", 9)), thread(103, "S", "hrtimer_nanosleep"))
    report = answer([node(rank(0), rank(1, works(101, cpu_s=1.9, earlier_line=68)), rank(2), rank(3, sleeps))])
    assert [each.ranks for each in report.culprits] == [(3,)]


@pytest.mark.parametrize(("channel", "wakes", "is_stuck"), [("anon_pipe_write", 5, False), ("anon_pipe_write", 0, True),
                                                            ("hrtimer_nanosleep", 5, True)])  # fmt: skip
def test_a_save_into_a_pipe_goes_on_where_somebody_takes_it(channel: str, wakes: int, is_stuck: bool) -> None:
    main = dataclasses.replace(thread(102, "S", channel, 60.0 if not wakes else 0.3), wakes=wakes)
    report = answer([four(rank(2, process(102, SAVE, main)))])
    assert (report.verdict is StuckVerdict.STUCK) == is_stuck, report.summary


@pytest.mark.parametrize(("cpu_s", "is_stuck"), [(1.9, False), (0.0, True)])
def test_a_rank_that_waits_for_a_child_works_if_the_child_does(cpu_s: float, is_stuck: bool) -> None:
    waits = process(100, frames(("build", "train.py", 5)), thread(100, "S", "do_wait"))
    compiler = process(500, None, dataclasses.replace(thread(500, "R", "", 0.0), cpu_s=cpu_s), name="cc1plus")
    report = answer([four(rank(0, waits, (compiler,)))])
    assert (report.verdict is StuckVerdict.STUCK) == is_stuck, report.summary
    assert ("waits for its child cc1plus (pid 500), which computes (95% of a CPU)" in report.summary) != is_stuck


@pytest.mark.parametrize(("age_s", "is_stuck"), [(60.0, False), (2.0, True)], ids=("worked", "of a loop that polls"))
def test_a_child_that_ended_during_the_watch_had_worked_if_it_had_not_just_begun(age_s: float, is_stuck: bool) -> None:
    waits = process(100, frames(("build", "train.py", 5)), thread(100, "S", "do_wait"))
    waits = dataclasses.replace(
        waits, threads=tuple(dataclasses.replace(each, wakes=2, asleep_s=0.5) for each in waits.threads)
    )
    ended = dataclasses.replace(process(500, None, name="cc1plus"), state="X", threads=(), age_s=age_s)
    report = answer([four(rank(0, waits, (ended,)))])
    assert (report.verdict is StuckVerdict.STUCK) == is_stuck, report.summary
    assert ("waits for its child cc1plus (pid 500), which has ended since" in report.summary) != is_stuck


def test_a_stopped_rank_comes_before_everything_that_others_do() -> None:
    report = answer([four(rank(1, process(101, ALL_REDUCE, thread(101, "T", "do_signal_stop"))))])
    assert [(c.reason, c.ranks) for c in report.culprits] == [(Reason.STOPPED_PROCESS, (1,))]
    assert "    kill -CONT 101" in report.culprits[0].steps


def test_a_rank_without_a_process_is_dead_where_the_others_were_in_training() -> None:
    orphan = Orphan(3, process(900, None, is_data_worker=True))
    report = answer([node(rank(0), rank(1), rank(2), orphans=(orphan,))])
    (culprit,) = report.culprits
    assert (culprit.reason, culprit.ranks) == (Reason.DEAD_RANK, (3,))
    assert "its process 900 (python) still runs and keeps its connections open" in culprit.what


def test_a_rank_that_never_came_is_told_from_one_that_died() -> None:
    starting = frames(("init_process_group", C10D, 1700), ("main", "train.py", 20))
    ranks = [rank(i, process(100 + i, starting, thread(100 + i, "S", "do_poll"))) for i in range(3)]
    (culprit,) = answer([node(*ranks)]).culprits
    assert (culprit.reason, culprit.ranks) == (Reason.NEVER_CAME, (3,))


def test_another_collective_is_told_with_both_lines() -> None:
    broadcast = frames(("broadcast", C10D, 3151), ("call_another", "train.py", 115))
    report = answer([four(rank(2, process(102, broadcast)))])
    (culprit,) = report.culprits
    assert (culprit.reason, culprit.ranks) == (Reason.OTHER_COLLECTIVE, (2,))
    assert (
        "rank 2 on n0 waits in broadcast (train.py:115, call_another), 3 others in all_reduce (train.py:187"
        in culprit.what
    )


def test_the_same_collective_without_a_sign_of_a_path_is_said_to_be_just_that() -> None:
    (culprit,) = answer([node(*(rank(i) for i in range(4)))]).culprits
    assert (culprit.reason, culprit.ranks) == (Reason.NOTHING_MOVES, ())


def test_the_holder_of_a_file_lock_is_named() -> None:
    waits = frames(
        ("download", "train.py", 77),
    )
    lock = HeldLock(100, 4711, "flock", "")
    report = answer([four(rank(0, process(100, waits, thread(100, "S", "locks_lock_inode_wait"))), locks=(lock,))])
    assert report.places[0].activity is Activity.FILE_LOCK
    assert "held by process 4711 (flock)" in report.summary


def test_a_data_worker_that_does_not_deliver_is_named_with_its_line() -> None:
    waits = frames(
        ("wait", "/usr/lib/python3.11/multiprocessing/connection.py", 930),
        ("_MultiProcessingDataLoaderIter._try_get_data", f"{SITE}/torch/utils/data/dataloader.py", 1275),
        ("train", "train.py", 160),
    )
    reads = frames(
        ("read_shard", "data.py", 30),
        ("fetch", f"{SITE}/torch/utils/data/_utils/fetch.py", 54),
        ("_worker_loop", f"{SITE}/torch/utils/data/_utils/worker.py", 349),
    )
    worker = process(500, reads, thread(500, "S", "wait_for_partner"), is_data_worker=True)
    report = answer([four(rank(3, process(103, waits, thread(103, "S", "do_poll", 0.0)), (worker,)))])
    assert report.places[3].activity is Activity.DATA_LOADING
    assert "its data worker (pid 500) is blocked in data.py:30, read_shard" in report.summary


def test_a_native_call_that_keeps_the_gil_is_told() -> None:
    calls = frames(
        ("call_extension", "train.py", 81),
    )
    report = answer([four(rank(3, process(103, calls, thread(103, "S", "anon_pipe_read"), has_gil=True)))])
    assert report.places[3].activity is Activity.GIL


def test_a_rank_that_computes_while_the_others_rest_is_named() -> None:
    computes = frames(
        ("prepare", "train.py", 71),
    )
    report = answer([four(rank(1, process(101, computes, thread(101, "R", "", 0.0))))])
    assert report.places[1].activity is Activity.PYTHON and report.culprits[0].ranks == (1,)


def test_ranks_that_all_woke_a_moment_ago_go_on() -> None:
    ranks = [rank(i, process(100 + i, main=thread(100 + i, asleep_s=0.3))) for i in range(4)]
    report = answer([node(*ranks)])
    assert (report.verdict, report.exit_code, report.culprits) == (StuckVerdict.NOT_STUCK, 0, ())


def test_ranks_that_wait_for_a_while_but_not_for_long_are_neither() -> None:
    ranks = [rank(i, process(100 + i, main=thread(100 + i, asleep_s=3.0))) for i in range(4)]
    assert answer([node(*ranks)]).exit_code == 3


def test_where_every_rank_ended_none_is_said_to_run_still() -> None:
    ranks = (rank(n, process(100 + n, (), thread(100 + n, "Z", ""))) for n in range(2))
    report = answer([node(*ranks)])
    assert (report.exit_code, report.summary) == (3, "Every rank here has ended: ranks 0-3.")


def test_a_rank_that_ends_is_no_proof_that_the_job_goes_on() -> None:
    ended = process(103, (), thread(103, "Z", ""))
    ranks = [*(rank(i, process(100 + i, main=thread(100 + i, asleep_s=0.3))) for i in range(3)), rank(3, ended)]
    report = answer([node(*ranks)])
    assert report.exit_code == 3 and "rank 3 ended" in report.summary


@pytest.mark.parametrize(
    ("channel", "state", "activity"),
    [
        ("wait_for_partner", "S", Activity.FILE_IO), ("flock_lock_inode_wait", "S", Activity.FILE_LOCK),
        ("hrtimer_nanosleep", "S", Activity.SLEEPING), ("", "R", Activity.PYTHON),
        ("do_wait", "S", Activity.SUBPROCESS),
        ("nfs_wait_on_request", "D", Activity.FILE_IO),
    ],
)  # fmt: skip
def test_without_ptrace_the_kernel_names_the_odd_rank(channel: str, state: str, activity: Activity) -> None:
    asleep_s = 60.0 if channel else 0.0
    odd = rank(2, process(102, None, thread(102, state, channel, asleep_s)))
    others = [rank(i, process(100 + i, None)) for i in (0, 1, 3)]
    report = answer([node(*others, odd)])
    assert (report.exit_code, report.culprits[0].ranks) == (1, (2,))
    assert report.places[2].activity is activity


def test_without_ptrace_nobody_is_named_where_all_look_alike() -> None:
    report = answer([node(*(rank(i, process(100 + i, None)) for i in range(4)))])
    assert (report.verdict, report.exit_code, report.culprits) == (StuckVerdict.UNKNOWN, 3, ())


def test_several_nodes_give_one_answer() -> None:
    first = node(rank(0, size=2), rank(1, size=2), host="a")
    second = node(rank(2, process(102, SAVE), size=2), rank(3, size=2), host="b")
    report = answer([first, second])
    (culprit,) = report.culprits
    assert (culprit.ranks, culprit.host) == ((2,), "b") and len(report.places) == 4


def test_ranks_on_nodes_that_were_not_looked_at_are_said_to_be_unseen() -> None:
    own = [dataclasses.replace(rank(i, size=2), world_size=4) for i in range(2)]
    assert any("2 of 4 ranks run on nodes that were not checked" in each for each in answer([node(*own)]).not_seen)


def test_a_gpu_that_is_lost_is_the_cause() -> None:
    lost = Gap("NVMLError_GpuIsLost: the GPU has fallen off the bus or can't be reached")
    gpus = (GpuState(3, lost, lost, lost, lost, lost),)
    assert answer([node(*(rank(i) for i in range(4)), gpus=gpus)]).culprits[0].reason is Reason.GPU_LOST


def test_full_use_at_low_power_is_a_hint() -> None:
    gpus = (GpuState(0, "GPU-0", 100.0, 120.0, 700.0, 1980.0), GpuState(1, "GPU-1", 100.0, 650.0, 700.0, 1980.0))
    (hint,) = answer([node(*(rank(i) for i in range(4)), gpus=gpus)]).hints
    assert hint.startswith("GPU 0 of n0") and "likely waits" in hint


def test_busy_waiting_in_a_collective_stands_where_its_stack_does_not_change() -> None:
    spins = [rank(i, process(100 + i, main=thread(100 + i, "R", "", 0.0))) for i in range(4)]
    assert answer([node(*spins)]).culprits[0].reason is Reason.NOTHING_MOVES


def test_no_rank_at_all_is_no_answer() -> None:
    report = answer([])
    assert (report.exit_code, report.summary) == (3, "No rank of a job was found here.")


def test_the_document_fits_its_schema_and_comes_back_as_it_was() -> None:
    report = answer([four(rank(2, process(102, SAVE)))])
    document = json.loads(json.dumps(encode(report)))
    jsonschema.Draft202012Validator(stuck_schema()).validate(document)
    assert decode(StuckReport, document) == report


def test_what_a_process_is_called_can_harm_no_terminal() -> None:
    evil = frames(
        ("\x1b]0;owned\x07", "tr\x1b[2Jain.py", 1),
    )
    report = answer([four(rank(2, process(102, evil, thread(102, "R", "", 0.0))), host="\x1b[31mred\u202e")])
    for width in (40, 80, 120):
        page = stuck_page(report).shown(Detail.ALL, Style(width))
        assert "\x1b" not in page and "\u202e" not in page and "\x07" not in page
        assert max(map(len, page.splitlines())) <= width
