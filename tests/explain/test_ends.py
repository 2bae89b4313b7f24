"""How a run ended: servers that shut down in order, processes that exit on their own, and programs' last words."""

from __future__ import annotations

import pytest

from preflight.explain.explain_logs import Log, explain
from preflight.model.explanation import ExplainVerdict
from tests.explain.logs import explain_bytes
from tests.explain.test_stories import GAVE_UP, RAISED


def verdict_of(*lines: str) -> ExplainVerdict:
    return explain_bytes("\n".join([*lines, ""]).encode()).verdict


def test_a_server_that_shuts_down_in_order_has_ended_and_one_that_starts_again_has_not() -> None:
    begun = ("INFO:     Started server process [7]", "INFO:     Application startup complete.")
    ended = ("INFO:     Application shutdown complete.", "INFO:     Finished server process [7]")
    assert verdict_of(*begun, *ended) is ExplainVerdict.HEALTHY
    assert verdict_of(*begun, *ended, *begun) is not ExplainVerdict.HEALTHY
    assert verdict_of(*begun, *ended, begun[0], *RAISED) is not ExplainVerdict.HEALTHY
    assert verdict_of(*begun, *RAISED, *ended) is not ExplainVerdict.HEALTHY
    assert verdict_of(*ended) is not ExplainVerdict.HEALTHY


def test_processes_that_exit_on_their_own_after_no_error_have_ended() -> None:
    left = "[rank{}]:[W430 15:01:06.8 ProcessGroupNCCL.cpp:1250] WARNING: process group has NOT been destroyed before"
    work = tuple(f"step {i}/40 loss: 2.{i}" for i in range(6))
    assert verdict_of(*work, left.format(1), left.format(0)) is ExplainVerdict.HEALTHY
    assert verdict_of(*work, "real\t1m23.268s", "user\t1m40.026s", "sys\t0m35.075s") is ExplainVerdict.HEALTHY
    assert verdict_of(*work, left.format(1)) is ExplainVerdict.UNFINISHED  # rank 0 is still there
    assert verdict_of(left.format(0), *work) is ExplainVerdict.UNFINISHED
    assert verdict_of(*work, *RAISED, left.format(0)) is not ExplainVerdict.HEALTHY


@pytest.mark.parametrize(
    "left",
    ["peak memory consumption: 16662 MiB", "final_int8_zlib_roundtrip val_loss:2.0727 val_bpb:1.2244 eval_time:1401ms",
     "INFO:root:Total pretraining time 16:24:08.377092", "Total running time:  7:20:14.828826",
     "INFO 09-20 19:11:53 [launcher.py:101] Shutting down FastAPI HTTP server."],
)  # fmt: skip
def test_what_a_process_prints_as_it_exits_is_an_end_only_if_nothing_failed(left: str) -> None:
    work = [f"step {i}/40 loss: 2.{i}" for i in range(6)]
    assert verdict_of(*work, left) is ExplainVerdict.HEALTHY
    assert verdict_of(*work, *RAISED, left) is not ExplainVerdict.HEALTHY
    assert verdict_of(left, *work) is ExplainVerdict.UNFINISHED


def test_a_node_that_outlives_the_rendezvous_endpoint_after_its_ranks_left_has_not_failed() -> None:
    work = [f"step {i}/40 loss: 2.{i}" for i in range(6)]
    left = "[rank0]:[W430 15:01:06.8 ProcessGroupNCCL.cpp:1250] WARNING: process group has NOT been destroyed before"
    late = (
        "W0430 15:01:09.1 652599 torch/distributed/elastic/rendezvous/dynamic_rendezvous.py:1331] The node 'b_6525_0' "
        "has failed to send a keep-alive heartbeat to the rendezvous '1468' due to an error of type "
        "RendezvousTimeoutError."
    )
    assert verdict_of(*work, left, late) is ExplainVerdict.HEALTHY
    assert verdict_of(*work, late) is ExplainVerdict.CAUSE_NAMED
    an_hour = [f"step {i}/900 loss: 2.{i}" for i in range(60)]
    assert verdict_of("real\t12m31.268s", *an_hour, late) is ExplainVerdict.CAUSE_NAMED  # of `time` before the job
    assert verdict_of(*work, late, left) is ExplainVerdict.CAUSE_NAMED
    assert verdict_of(*work, *RAISED, left, late) is ExplainVerdict.CAUSE_NAMED


def test_workers_that_python_ended_as_the_program_exited_are_no_failure_and_no_end() -> None:
    died = (
        "ERROR 12-26 03:59:12 multiproc_worker_utils.py:116] Worker VllmWorkerProcess pid 359057 died, exit code: -{}"
    )
    killed = "INFO 12-26 03:59:12 multiproc_worker_utils.py:120] Killing local vLLM worker processes"
    work = [f"Processed prompts: {i}/40 [00:0{i}<00:30, 1.{i}it/s]" for i in range(6)]
    assert verdict_of(*work, died.format(15), killed) is ExplainVerdict.UNFINISHED
    assert verdict_of(*work, died.format(9), killed) not in (ExplainVerdict.UNFINISHED, ExplainVerdict.HEALTHY)


def test_the_status_of_ray_tune_is_no_end() -> None:
    assert (
        verdict_of("Current time: 2026-11-28 12:00:00. Total running time: 30s", *RAISED) is not ExplainVerdict.HEALTHY
    )


def test_what_a_server_prints_after_it_was_asked_to_stop_is_no_fault() -> None:
    begun = ("INFO:     Started server process [7]", "INFO:     Application startup complete.")
    asked = "INFO 08-15 01:50:29 launcher.py:45] Gracefully stopping http server"
    ended = ("INFO:     Waiting for application shutdown.", "INFO:     Application shutdown complete.")
    raised = (*RAISED, "zmq.error.ZMQError: Operation not supported")
    assert verdict_of(*begun, asked, *raised, *ended) is ExplainVerdict.HEALTHY
    assert verdict_of(*begun, *raised, asked, *ended) is ExplainVerdict.CAUSE_NAMED


@pytest.mark.parametrize(
    "ended",
    ["Training time 5:49:46", "2024-07-30 01:53:39 - LOGS - Training took 00:17:37.67", "Total wall time: 0:00:43",
     "vLLM Benchmark Suite Completed", "Return code: 0", "INFO Training done",
     '{"timestamp":1745007562.1,"name":"complete","context":{"status":0}}'],
)  # fmt: skip
def test_words_with_which_programs_report_their_end(ended: str) -> None:
    work = [f"step {i}/40 loss: 2.{i}" for i in range(6)]
    assert verdict_of(*work, ended) is ExplainVerdict.HEALTHY
    assert verdict_of(*work, *RAISED, f"{GAVE_UP}") is not ExplainVerdict.HEALTHY


LOST = (
    "Traceback (most recent call last):",
    '  File "/home/me/update.py", line 41, in main',
    "    weights[key]",
    "KeyError: 1",
)
SERVED = ("INFO:     Started server process [7]", "INFO:     Application startup complete.")
ASKED = "(APIServer pid=7) INFO 03-01 11:00:30 [launcher.py:100] [shutdown] API server: shutdown triggered"
SHUT = "INFO:     Application shutdown complete."


def test_what_fails_after_a_servers_end_is_not_excused_by_its_stop_order() -> None:
    work = [f"step {number}/500 loss: 2.{number}" for number in range(500)]
    for after in ((), work):
        assert verdict_of(*SERVED, ASKED, SHUT, *after, *LOST) is ExplainVerdict.CAUSE_NAMED
    assert verdict_of(*SERVED, ASKED, *work, *LOST) is ExplainVerdict.CAUSE_NAMED


def test_a_stop_order_excuses_nothing_in_another_log() -> None:
    texts = {"server.log": (*SERVED, ASKED, SHUT), "trainer.log": ("step 1/9 loss: 2.5", *LOST)}
    logs = [Log(name, ["\n".join([*lines, ""]).encode()]) for name, lines in texts.items()]
    assert explain(logs).verdict is ExplainVerdict.CAUSE_NAMED


def test_a_server_whose_engine_is_dead_has_not_ended_in_order() -> None:
    dead = "CRITICAL 03-01 11:00:30 [launcher.py:99] AsyncLLM is already dead, terminating server process"
    last = "INFO 03-01 11:00:30 [launcher.py:101] Shutting down FastAPI HTTP server."
    assert verdict_of(*SERVED, dead, last, SHUT) is ExplainVerdict.NOT_ENOUGH_EVIDENCE


def test_the_time_of_the_training_ends_no_job_that_failed_before_or_after() -> None:
    total = "Total training time: 0:10:00"
    work = [f"step {i}/40 loss: 2.{i}" for i in range(6)]
    assert verdict_of(*work, *LOST, total) is ExplainVerdict.CAUSE_NAMED
    assert verdict_of(*work, total, "Starting evaluation", *LOST) is ExplainVerdict.CAUSE_NAMED


@pytest.mark.parametrize("last", ["ERROR: 3 shards are corrupt. Exiting.", "could not read shard 17, giving up"])
def test_an_error_without_a_known_form_is_not_called_healthy(last: str) -> None:
    left = "[rank0]:[W430 15:01:06.8 ProcessGroupNCCL.cpp:1250] WARNING: process group has NOT been destroyed before"
    work = [f"step {i}/40 loss: 2.{i}" for i in range(6)]
    end = left if last.startswith("ERROR") else "n1:7:7 [0] NCCL INFO comm 0x8b017a0 rank 0 nranks 1 - Abort COMPLETE"
    assert verdict_of(*work, last, end) is ExplainVerdict.UNFINISHED


def test_a_launcher_that_stopped_every_rank_got_the_signal_from_outside() -> None:
    report = (
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ",
        "[1]:",
        "  rank      : 1 (local_rank: 1)",
        "  exitcode  : -15 (pid: 1454089)",
        "  traceback : Signal 15 (SIGTERM) received by PID 1454089",
        "[0]:",
        "  rank      : 0 (local_rank: 0)",
        "  exitcode  : {} (pid: 1454088)",
    )
    stopped, failed = (explain_bytes("\n".join(report).format(code).encode()).summary for code in (-15, 1))
    assert stopped.startswith("The job got SIGTERM from outside")
    assert not failed.startswith("The job got SIGTERM")


OUT, ERR = "slurm-7.out", "slurm-7.err"
REFUSED = (
    b"ValueError: FSDP requires PyTorch >= 2.1.0\ntorch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n"
)


@pytest.mark.parametrize(
    ("out", "verdict"),
    [
        (b"Activated conda environment\nTraining Completed\n", ExplainVerdict.CAUSE_NAMED),
        (b"step 10 loss: 2.1\nstep 20 loss: 2.0\nstep 30 loss: 2.0\nTraining completed\n", ExplainVerdict.HEALTHY),
    ],
    ids=["a script says so after a launcher gave up", "the log of the work says so"],
)
def test_a_success_beside_the_log_of_a_launcher_that_gave_up(out: bytes, verdict: ExplainVerdict) -> None:
    raised = b'Traceback (most recent call last):\n  File "t.py", line 7, in <module>\n    main()\n' + REFUSED
    assert explain([Log(ERR, [raised]), Log(OUT, [out])]).verdict is verdict


def test_an_error_before_a_server_became_ready_does_not_count_once_it_shut_down_in_order() -> None:
    begun = ("INFO:     Started server process [7]", "INFO:     Application startup complete.")
    ended = ("INFO:     Application shutdown complete.", "INFO:     Finished server process [7]")
    error = "E0930 18:51:40.379 probe.cc:12] could not read the clock of the adapter zz9"
    assert verdict_of(error, *begun, *ended) is ExplainVerdict.HEALTHY
    assert verdict_of(*begun, error, *ended) is not ExplainVerdict.HEALTHY
