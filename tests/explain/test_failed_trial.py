"""`preflight check` reads its own failed trials with the reader of `explain`."""

from __future__ import annotations

from dataclasses import replace

from preflight.explain.failed_trial import with_cause
from preflight.model.trial import LogLine, Outcome, RankEnd
from tests.reports import failed_trial

SHM = "NCCL error\nLast error:\nError while creating shared memory segment /dev/shm/nccl-7b044b (size 7340384)"


def test_a_failed_trial_carries_the_cause_that_its_ranks_prove() -> None:
    trial = replace(
        failed_trial("default"), ranks=(RankEnd(1, "error", "init", SHM),), problem="rank 1 crashed in init"
    )
    problem = with_cause(trial).problem
    assert problem.startswith("rank 1 crashed in init. Shared memory (/dev/shm) is too small")
    assert "[shm_too_small]" in problem


def test_a_trial_whose_ranks_only_waited_says_no_more_than_before() -> None:
    waited = "RuntimeError: Timed out waiting 7000ms for recv operation to complete"
    trial = replace(failed_trial("default"), ranks=(RankEnd(0, "timeout", "first", waited),))
    assert with_cause(trial) == trial


def test_a_trial_that_works_is_left_alone() -> None:
    trial = replace(failed_trial("default"), outcome=Outcome.OK, ranks=(RankEnd(0, "done", "done", SHM),))
    assert with_cause(trial) == trial


WARN = "node-1:7:9 [1] misc/shmutils.cc:88 NCCL WARN Error: failed to extend /dev/shm/nccl-Ab12 to 9637892 bytes"
LOG = (LogLine(40, "node-1:7:9 [1] NCCL INFO Channel 00 : 0[0] -> 1[1] via SHM/direct/direct"), LogLine(42, WARN))


def test_what_nccl_wrote_into_its_own_log_is_read_and_the_line_and_its_file_are_named() -> None:
    end = RankEnd(1, "error", "init", "NCCL error: unhandled system error", "nccl/0.node-1.7.log", LOG)
    other = RankEnd(0, "killed", "init", "", "nccl/0.node-1.6.log", LOG[:1])
    trial = replace(failed_trial("default"), outcome=Outcome.INIT_ERROR, ranks=(other, end))
    (cause,) = with_cause(trial).causes
    assert (cause.cause, cause.proof, cause.source) == ("shm_too_small", WARN, "nccl/0.node-1.7.log:42")
    assert cause.verdict in with_cause(trial).problem


def test_an_error_that_a_rank_raised_is_proof_as_well() -> None:
    trial = replace(failed_trial("default"), ranks=(RankEnd(1, "error", "init", SHM),))
    assert with_cause(trial).causes[0].source == "what rank 1 raised"


def test_of_many_ranks_only_a_few_logs_stay_in_the_report_those_of_the_culprits_first() -> None:
    ends = tuple(RankEnd(rank, "killed", "init", "", f"nccl/0.n.{rank}.log", LOG[:1]) for rank in range(64))
    trial = with_cause(replace(failed_trial("default"), ranks=ends, culprits=(40,)))
    assert [end.rank for end in trial.ranks if end.log] == [0, 1, 2, 3, 4, 5, 6, 40]


def test_a_signal_ends_one_rank_and_the_error_of_another_is_still_read() -> None:
    killed, lost = RankEnd(1, "signal", "first", "died by SIGSEGV"), RankEnd(2, "connection", "first", CONNECT)
    trial = replace(failed_trial("default"), culprits=(1,), ranks=(RankEnd(0, "error", "first", SHM), killed, lost))
    assert [cause.cause for cause in with_cause(trial).causes] == ["shm_too_small"]
    assert with_cause(replace(trial, ranks=(killed, lost))).causes == ()


CONNECT = "RuntimeError: Connect to 127.0.0.1<45231> failed : Connection refused"
