"""Short logs of a few lines: which of several failures led to the others."""

from __future__ import annotations

import pytest

from preflight.model.explanation import Confidence, ExplainVerdict
from tests.explain.logs import cause_of_lines, explain_bytes, status, watchdog

STEP = "{'loss': 1.2, 'learning_rate': 1e-05, 'epoch': 0.1}"
CANCELLED = "slurmstepd: error: *** STEP 123.0 ON gpu-1 CANCELLED AT 2025-01-07T05:36:24 ***"
LOST = "[rank8]: socketProgress: Connection closed by remote peer node-1<44101>"
ADDED = "INFO:torch.distributed.distributed_c10d:Added key: store_based_barrier_key:1 to store for rank: 0"


def test_a_step_that_slurm_cancels_after_a_task_lost_its_peer_was_not_cancelled_by_a_person() -> None:
    assert (
        cause_of_lines([LOST, "srun: error: gpu-2: task 1: Exited with exit code 1", CANCELLED]) == "remote_peer_died"
    )
    assert cause_of_lines([STEP, CANCELLED]) == "scheduler_cancelled"


def test_a_crash_before_the_cancellation_is_the_cause() -> None:
    assert cause_of_lines(["srun: error: gpu-2: task 1: Segmentation fault", CANCELLED]) == "segfault_worker"


def test_who_told_a_launcher_to_stop_is_not_known_but_of_a_terminal_that_was_closed() -> None:
    stop = "Received 15 death signal, shutting down workers"
    assert cause_of_lines([STEP, stop, "Signal 15 (SIGTERM) received by PID 7"]) == "not_enough_evidence"
    assert cause_of_lines([STEP, stop.replace("15", "1")]) == "scheduler_cancelled"
    assert cause_of_lines(["torch.OutOfMemoryError: CUDA out of memory.", stop]) == "cuda_oom_masked"


def test_a_python_error_beside_the_cause_is_told_as_its_consequence() -> None:
    raised = ["Traceback (most recent call last):", '  File "train.py", line 10, in <module>', "KeyError: 5"]
    explanation = explain_bytes("\n".join(["torch.OutOfMemoryError: CUDA out of memory.", *raised]).encode())
    assert [cause.cause for cause in explanation.causes] == ["cuda_oom_masked"]
    assert [(c.cause, "KeyError: 5" in c.what) for c in explanation.consequences] == [("not_nccl", True)]


def test_joining_the_store_is_no_sign_of_a_wait_in_vain() -> None:
    assert cause_of_lines([ADDED, STEP]) == "unfinished"
    waiting = "Waiting in store based barrier to initialize process group for rank: 0, key: store_based_barrier_key:1"
    assert cause_of_lines([ADDED, *[waiting] * 4]) == "store_wait_timeout"
    assert cause_of_lines([ADDED, *[waiting] * 4, STEP]) == "unfinished"
    assert cause_of_lines([ADDED, watchdog(1, seq=122), STEP]) == "watchdog_timeout_straggler"


def test_p2p_that_is_not_possible_is_the_cause_only_where_nothing_ever_moved() -> None:
    refused = "node-1:4411:4420 [0] NCCL INFO Could not enable P2P between dev 1(=1b000) and dev 0(=1a000)"
    assert cause_of_lines([refused, STEP, STEP]) == "unfinished"
    assert (
        cause_of_lines([refused, STEP, watchdog(0, seq=900), status(0, 900, 901, 899)]) == "watchdog_timeout_straggler"
    )
    assert cause_of_lines([refused]) == "p2p_broken"


def test_what_ddp_compares_after_a_collective_that_never_ended_is_an_echo() -> None:
    zero = "DDP expects same model across all ranks, but Rank 0 has 51 params, while rank 1 has inconsistent 0 params."
    assert cause_of_lines([watchdog(0, seq=9), f"[rank0]: RuntimeError: {zero}"]) == "watchdog_timeout_straggler"


def test_a_crash_in_native_code_after_success_is_noise_of_the_end() -> None:
    crash = "torch.distributed.elastic.multiprocessing.api:failed (exitcode: -11) local_rank: 0 (pid: 23)"
    assert cause_of_lines(["Training completed successfully", crash]) == "teardown_after_success"
    assert cause_of_lines([STEP, crash]) == "segfault_worker"


@pytest.mark.parametrize(
    "saving",
    [
        "  successfully saved checkpoint at iteration     500 to /ckpt",
        "accelerate.accelerator - Saving current state to /out/checkpoint-500",
        "fairseq.checkpoint_utils | Preparing to save checkpoint for epoch 1 @ 500 updates",
        "[torch_checkpoint_engine.py:33:commit] [Torch] Checkpoint global_step5000 is ready now!",
    ],
)
def test_a_wait_that_began_at_a_save_is_a_save_timeout(saving: str) -> None:
    assert cause_of_lines([STEP, saving, watchdog(1, seq=1202, numel=1)]) == "checkpoint_save_timeout"


@pytest.mark.parametrize(
    "last",
    [
        "Initializing distributed: GLOBAL_RANK: 1, MEMBER: 2/2",
        "[2025-01-30 18:11:27 TP1] Init torch distributed begin.",
        "INFO 12-12 22:21:31 pynccl.py:69] vLLM is using nccl==2.21.5",
        "#  Rank  3 Group  0 Pid 4711 on node-1 device  3 [0000:5a:00] NVIDIA H800",
    ],
)
def test_a_log_that_ends_in_a_step_of_seconds_hangs(last: str) -> None:
    assert cause_of_lines(["starting", last]) == "hang_no_error"
    assert cause_of_lines(["starting", last, "step 1", STEP]) == "unfinished"


def test_refused_arguments_are_the_programs_own() -> None:
    lines = ["usage: train.py [-h]", "train.py: error: unrecognized arguments: --local-rank=0", "failed (exitcode: 2)"]
    assert cause_of_lines(lines) == "framework_argument_error"


def test_an_index_that_rank_0_builds_while_the_store_gives_up_is_preparation_of_data() -> None:
    lines = [
        "> WARNING: could not find index map file /data/x.npy, building the indices on rank 0 ...",
        "RuntimeError: Socket Timeout",
    ]
    assert cause_of_lines(lines) == "data_preprocessing_on_rank0_timeout"


STEPS = [f"{{'loss': 0.{i}, 'epoch': 0.{i}}}" for i in range(2, 7)]
CAUGHT = [
    "Exception in thread Thread-5:",
    "Traceback (most recent call last):",
    '  File "/opt/env/upload.py", line 3, in f',
    "ValueError: cannot upload",
]


@pytest.mark.parametrize(
    "failure",
    [
        ["ProtocolError: ('Connection aborted.', ConnectionResetError(104, 'Connection reset by peer'))"],
        ["CUDA out of memory. Reducing batch size to 4 and retrying"],
        CAUGHT,
    ],
    ids=["echo", "memory", "exception"],
)
def test_what_training_went_on_after_was_survived(failure: list[str]) -> None:
    assert cause_of_lines([STEP, *failure, *STEPS]) == "unfinished"
    assert cause_of_lines([STEP, *failure]) != "unfinished"


def test_what_a_dying_process_had_still_to_print_is_no_sign_that_it_went_on() -> None:
    died = "ERROR:torch.distributed.elastic.multiprocessing.api:failed (exitcode: 1) local_rank: 0 (pid: 7) of binary"
    bars = [f" 2%| | 24/1752 [01:0{i}<1:22:56, 2.88s/it]" for i in range(6)]
    assert cause_of_lines([STEP, *CAUGHT, *STEPS, died]) == "not_nccl"
    assert cause_of_lines(["RuntimeError: CUDA out of memory.", *bars]) == "cuda_oom_masked"


def test_a_killed_process_stays_the_cause_whatever_others_print() -> None:
    killed = "slurmstepd: error: Detected 1 oom_kill event in StepId=12.0."
    assert cause_of_lines([STEP, killed, *STEPS]) == "host_oom_killed"


@pytest.mark.parametrize(
    "reason", [" DUE TO TIME LIMIT", " DUE TO PREEMPTION", ""], ids=["limit", "preempted", "by_hand"]
)
def test_a_step_that_slurm_ended_stays_ended_however_long_it_works_on_without_heeding_the_signal(reason: str) -> None:
    ended = f"slurmstepd: error: *** STEP 812.0 ON gpu-7 CANCELLED AT 2026-05-03T04:00:12{reason} ***"
    bars = [f"Epoch 3:  41%|####  | {i}/9000 [1:02:{i % 60:02}<2:05:20, 1.2it/s, loss=2.1]" for i in range(400, 460)]
    cause = "scheduler_time_limit" if "LIMIT" in reason else "scheduler_cancelled"
    assert cause_of_lines([*bars[:5], ended, "Bypassing SIGTERM: 15", *bars[5:]]) == cause
    again = "Restoring states from the checkpoint path at /ckpt/last.ckpt"
    assert cause_of_lines([*bars[:5], ended, again, *bars[5:]]) == "unfinished"


def test_refused_connections_that_somebody_got_through_were_a_start() -> None:
    refused = "node-1:11:12 [0] NCCL INFO Call to connect returned Connection refused, retrying"
    complete = "node-1:11:12 [0] NCCL INFO comm 0x1 rank 0 nranks 2 cudaDev 0 busId 1a000 - Init COMPLETE"
    assert cause_of_lines([refused, complete]) == "unfinished"
    assert cause_of_lines([complete, refused]) == "wrong_socket_interface"


def test_preparation_that_was_done_long_before_anybody_gave_up_is_not_what_they_waited_for() -> None:
    quick = "Running tokenizer on dataset: 100%|####| 1000/1000 [00:03<00:00, 300.1 examples/s]"
    slow = quick.replace("00:03", "35:03")
    late = watchdog(1, seq=5, numel=1, timeout_ms=1_800_000)
    assert cause_of_lines([quick, late]) == "watchdog_timeout_straggler"
    assert cause_of_lines([slow, late]) == "data_preprocessing_on_rank0_timeout"
    download = "100%|####| 97.8M/97.8M [00:03<00:00, 30.1MB/s]"
    assert cause_of_lines([download, "RuntimeError: Socket Timeout"]) == "store_wait_timeout"


def test_refused_connections_before_nccl_gave_up_are_the_cause_however_long_the_traceback() -> None:
    refused = "node-1:11:12 [0] NCCL INFO Call to connect returned Connection refused, retrying"
    traceback = ["Traceback (most recent call last):", *['  File "train.py", line 1, in main'] * 30]
    error = "RuntimeError: NCCL error in: ProcessGroupNCCL.cpp:784, unhandled system error, NCCL version 2.7.8"
    assert cause_of_lines([refused, refused, *traceback, error]) == "wrong_socket_interface"


def test_a_collective_that_was_aborted_for_an_error_did_not_time_out() -> None:
    work = "WorkNCCL(SeqNum=335, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000)"
    aborted = (
        f"[rank11]:[E1010 ProcessGroupNCCL.cpp:552] [Rank 11] Collective {work} raised the following async exception"
    )
    assert cause_of_lines([f"{aborted}: NCCL error: remote process exited", LOST]) == "remote_peer_died"
    assert cause_of_lines([f"{aborted}: CUDA error: an illegal memory access"]) == "cuda_illegal_address"


@pytest.mark.parametrize(
    "last", ["torch._dynamo.exc.Unsupported: call_function", "StopIteration", "huggingface_hub.errors.EntryNotFound: x"]
)
def test_an_exception_need_not_be_called_error(last: str) -> None:
    raised = ["[rank3]: Traceback (most recent call last):", '[rank3]:   File "train.py", line 10, in <module>']
    assert cause_of_lines([*raised, f"[rank3]: {last}", watchdog(0, seq=122)]) == "not_nccl"


def test_the_last_line_of_a_traceback_is_enough_where_a_process_died_of_it() -> None:
    last = "[rank2]: KeyError: 'pixel_values'"
    assert cause_of_lines([last, watchdog(0, seq=122)]) == "not_nccl"
    assert cause_of_lines([last, "exits with return code = 1"]) == "not_nccl"
    assert cause_of_lines([f"2026-01-09T17:40:31.169312Z trainer-0 {last}", watchdog(0, seq=122)]) == "not_nccl"
    assert cause_of_lines([f"warning, ignored: {last}", watchdog(0, seq=122)]) == "watchdog_timeout_straggler"
    assert cause_of_lines([last, *["epoch 1"] * 20]) == "not_enough_evidence"
    assert cause_of_lines([last, "torch.OutOfMemoryError: CUDA out of memory."]) == "cuda_oom_masked"


def test_torch_used_before_its_group_exists_is_the_programs_own_error() -> None:
    raised = ["Traceback (most recent call last):", '  File "train.py", line 10, in <module>']
    last = "RuntimeError: Default process group has not been initialized, please make sure to call init_process_group."
    assert cause_of_lines([*raised, last]) == "not_nccl"


def test_a_cancellation_right_after_a_ranks_own_error_is_how_srun_stops_the_others() -> None:
    raised = ["2: Traceback (most recent call last):", '2:   File "a.py", line 1, in main', "2: AssertionError: layers"]
    failed = "srun: error: gpu-2: task 2: Exited with exit code 1"
    assert cause_of_lines([*raised, CANCELLED]) == "not_nccl"
    assert cause_of_lines([*raised, *[STEP] * 300, failed, CANCELLED]) == "not_nccl"
    assert cause_of_lines([*raised, *[STEP] * 300, CANCELLED]) == "scheduler_cancelled"


def test_a_log_that_stops_at_the_first_direct_copies_is_about_them() -> None:
    info = "node-1:4411:4420 [0] NCCL INFO"
    other = "node-1:4412:4421 [1] NCCL INFO"
    p2p = [f"{info} Channel 00/0 : 0[0] -> 1[1] via P2P/IPC", f"{other} Channel 00/0 : 1[1] -> 0[0] via P2P/IPC"]
    rings = [f"{info} Connected all rings", f"{other} Connected all rings"]
    assert cause_of_lines([*p2p, *rings]) == "p2p_broken"
    assert cause_of_lines([line.replace("P2P/IPC", "NET/Socket/0") for line in (*p2p, *rings)]) == "hang_no_error"
    assert cause_of_lines([*p2p, *rings, f"{info} rank 0 nranks 2 - Init COMPLETE", STEP]) == "unfinished"
    launched = f"{info} Launch mode Parallel"
    assert cause_of_lines([*p2p, f"{info} rank 0 nranks 2 - Init COMPLETE", launched]) == "p2p_broken"
    assert cause_of_lines([*p2p, f"{info} rank 0 nranks 2 - Init COMPLETE", launched, STEP]) == "unfinished"


def test_a_rank_that_waits_in_what_another_has_completed_called_something_else() -> None:
    behind = [watchdog(0, seq=648, op="_REDUCE_SCATTER_BASE"), status(0, 648, 653, 647)]
    ahead = [watchdog(1, seq=652, op="_ALLGATHER_BASE"), status(1, 652, 654, 651)]
    assert cause_of_lines([*behind, *ahead]) == "collective_mismatch"
    next_one = [watchdog(1, seq=649, op="_ALLGATHER_BASE"), status(1, 649, 654, 648)]
    assert cause_of_lines([*behind, *next_one]) == "watchdog_timeout_straggler"


def test_an_exception_that_points_to_another_one_is_its_echo() -> None:
    raised = ["Traceback (most recent call last):", '  File "engine.py", line 10, in start']
    for last in (
        "RuntimeError: Engine process failed to start. See stack trace for the root cause.",
        "x.GetTimeoutError: late",
    ):
        assert cause_of_lines([*raised, last, LOST]) == "remote_peer_died"


def test_a_rank_that_still_prepares_data_when_the_others_have_given_up_is_the_cause() -> None:
    waited = "[rank7]: torch.distributed.DistStoreError: wait timeout after 600000ms, keys: /default_pg/0//cuda//0"
    building = " > building shuffle index with split [0, 18112222) and [18112222, 18112222) ..."
    assert cause_of_lines([waited, building]) == "data_preprocessing_on_rank0_timeout"
    assert cause_of_lines([waited, STEP]) == "store_wait_timeout"


RAISED = ["Traceback (most recent call last):", '  File "train.py", line 10, in <module>']
GAVE_UP = "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: "
ENDPOINT_ENDED = (
    "W0305 12:42:19 dynamic_rendezvous.py:1282] The node 'b_1_0' has failed to shutdown the rendezvous '8' due"
)
NO_STORE = (
    "torch.distributed.elastic.rendezvous.api.RendezvousConnectionError: The connection to the C10d store has failed."
)


def test_the_other_nodes_torchrun_that_loses_the_endpoint_is_an_echo() -> None:
    assert cause_of_lines([watchdog(1, 701), ENDPOINT_ENDED, NO_STORE]) == "watchdog_timeout_straggler"
    assert cause_of_lines([*RAISED, "FileNotFoundError: [Errno 2] '/x'", "Map: 86%|8| 34/39 [00:11<00:01, 30 ex/s]",
                           ENDPOINT_ENDED, NO_STORE]) == "not_nccl"  # fmt: skip
    assert cause_of_lines([NO_STORE]) == "rendezvous_failed"


def test_an_unknown_error_of_cuda_proves_no_fault_of_the_hardware() -> None:
    unknown = "[rank0]: Process group watchdog thread terminated with exception: CUDA error: unknown error"
    (cause,) = explain_bytes(f"{unknown}\n".encode()).causes
    assert cause.confidence is Confidence.LOW and "hardware" not in cause.because
    assert cause_of_lines([unknown, "NVRM: Xid (PCI:0000:07:00): 79, GPU has fallen off the bus."]) == "xid_or_ecc"


def test_slurm_tells_of_the_memory_after_it_has_ended_the_step() -> None:
    oom = "slurmstepd: error: Detected 1 oom_kill event in StepId=91762.batch."
    assert cause_of_lines([STEP, CANCELLED, oom]) == "host_oom_killed"


def test_a_program_that_bash_calls_killed_may_have_a_long_command() -> None:
    killed = f"/opt/run.sh: line 149: 179417 Killed                  torchrun {'--option value ' * 40}"
    assert cause_of_lines([STEP, killed]) == "host_oom_killed"


def test_what_a_job_script_could_not_run_before_the_ranks_is_not_the_cause() -> None:
    missing = "/var/spool/slurmd/job7/slurm_script: line 377: python: command not found"
    refused = "node-1:1:2 [0] init.cc:10 NCCL WARN Failed to initialize any NET plugin"
    assert cause_of_lines([missing, refused]) != "not_nccl"
    assert cause_of_lines([missing]) == "not_nccl"
    script = [*RAISED, "ModuleNotFoundError: No module named 'dataclasses'", *["a line of the job"] * 60]
    ranks = [f"[rank{rank}]: {line}" for rank in range(2) for line in [*RAISED, "AssertionError: sizes do not match"]]
    assert "sizes do not match" in explain_bytes("\n".join([*script, *ranks, ""]).encode()).summary


def test_bars_of_others_prove_no_work_of_those_that_failed() -> None:
    failed = "[rank0]: CUDA error: device-side assert triggered"
    queued = [f"Adding requests: {i}%|##| {i}/100 [00:08<00:04, 91.80it/s]" for i in range(60, 90)]
    assert cause_of_lines([failed, *queued]) == "cuda_illegal_address"


def test_what_torchrun_gave_up_is_not_mended_by_the_scripts_next_program() -> None:
    oom = "[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 12.83 GiB. GPU 3"
    work = [f"{{'loss': {i}.0, 'learning_rate': 1e-05, 'epoch': 0.{i}}}" for i in range(30)]
    assert cause_of_lines([*work, oom, GAVE_UP, *work]) == "cuda_oom_masked"
    retried = [*work, oom, GAVE_UP, *work, "Training completed"]
    assert explain_bytes("\n".join([*retried, ""]).encode()).causes == ()
    restart = "INFO agent.py: Restarting worker group"
    assert explain_bytes("\n".join([oom, restart, *work, "Training completed", ""]).encode()).causes == ()


def test_an_exception_that_python_ignores_is_no_end_of_the_job() -> None:
    ignored = [
        "Exception ignored in atexit callback: <function update_table at 0x7f27>",
        *RAISED,
        "FileNotFoundError: x",
    ]
    work = [f"{{'loss': {i}.0, 'learning_rate': 1e-05, 'epoch': 0.{i}}}" for i in range(3)]
    assert (
        explain_bytes("\n".join([*work, *ignored, *["a word"] * 4, ""]).encode()).verdict is ExplainVerdict.UNFINISHED
    )


def test_a_data_worker_that_was_told_to_end_is_no_cause() -> None:
    ended = [*RAISED, "RuntimeError: DataLoader worker (pid 4711) is killed by signal: Terminated. "]
    assert cause_of_lines([STEP, *ended]) == "not_enough_evidence"
    killed = [*RAISED, "RuntimeError: DataLoader worker (pid 4711) is killed by signal: Killed. "]
    assert cause_of_lines([STEP, *killed]) == "dataset_worker_died"


def test_an_exception_whose_class_is_called_error_is_read() -> None:
    found = explain_bytes("\n".join([*RAISED, "binascii.Error: Incorrect padding", ""]).encode())
    assert found.causes[0].cause == "not_nccl" and "binascii.Error: Incorrect padding" in found.summary


def test_the_launcher_of_deepspeed_gives_up_like_torchrun() -> None:
    gave_up = "[ERROR] [launch.py:321:sigkill_handler] ['python', 'train.py'] exits with return code = 1"
    work = [f"{{'loss': {i}.0, 'learning_rate': 1e-05, 'epoch': 0.{i}}}" for i in range(30)]
    assert cause_of_lines([*work, *RAISED, "ValueError: 7 heads", gave_up, *work]) == "not_nccl"


def test_what_was_survived_long_before_a_launcher_gave_up_is_not_the_cause() -> None:
    port = "node-1:1:2 [0] NCCL WARN NET/IB : mlx5_0:1 Got async event : port error"
    work = [f"{{'loss': {i}.0, 'learning_rate': 1e-05, 'epoch': 0.{i}}}" for i in range(30)]
    last = [*RAISED, "KeyError: 'label'", GAVE_UP]
    assert cause_of_lines([port, *work, *last]) == "not_nccl"
    assert cause_of_lines([port, "INFO agent.py: Restarting worker group", *work, *last]) == "not_nccl"


def test_a_server_that_died_and_came_back_had_failed() -> None:
    ready = "[2026-03-01 10:00:30] The server is fired up and ready to roll!"
    oom = "[TP1] torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 12.83 GiB."
    assert cause_of_lines([ready, oom, ready]) == "cuda_oom_masked"
    idle = [f"INFO 03-01 10:00:{i:02} [loggers.py:1] Avg generation throughput: 0.0 tokens/s" for i in range(30)]
    illegal = "(Worker_TP0 pid=7) ERROR CUDA error: an illegal memory access was encountered"
    assert cause_of_lines([illegal, *idle]) == "cuda_illegal_address"


def test_memory_that_ran_out_elsewhere_or_later_leaves_a_stated_cancellation() -> None:
    oom = "slurmstepd: error: Detected 1 oom_kill event in StepId=91762.batch."
    preempted = CANCELLED.replace(" ***", " DUE TO PREEMPTION ***")
    assert cause_of_lines([STEP, preempted, oom]) == "scheduler_cancelled"
    kernel = "[23:00:01] Out of memory: Killed process 999 (jupyter-lab) total-vm:1kB"
    assert cause_of_lines([STEP, CANCELLED, kernel]) == "scheduler_cancelled"


def test_an_argument_that_one_rank_refuses_is_not_hidden_by_the_echo_of_others() -> None:
    refused = "[rank2]: train.py: error: unrecognized arguments: --foo"
    echo = "[rank0]: recvValue failed on SocketImpl(fd=3): Connection reset by peer"
    assert cause_of_lines([refused, echo]) == "framework_argument_error"


SPAWNED = "[2026-03-01 10:00:00] [INFO] [launch.py:272:main] process 4711 spawned with command: ['python', 'train.py']"
EXITED = "[ERROR] [launch.py:341:sigkill_handler] ['python', 'train.py'] exits with return code = 1"


def test_the_last_words_of_a_script_make_no_success_of_a_job_that_a_launcher_gave_up() -> None:
    failed = [SPAWNED, *RAISED, "RuntimeError: 7 heads", EXITED]
    assert cause_of_lines([*failed, "All done."]) == "not_nccl"
    assert cause_of_lines(["All done.", *failed, "All measurements complete!", "All done."]) == "not_nccl"


def test_the_success_of_a_program_that_began_after_a_failed_one_counts() -> None:
    failed = [SPAWNED, *RAISED, "RuntimeError: 7 heads", EXITED]
    found = explain_bytes("\n".join([*failed, SPAWNED, "Training completed", ""]).encode())
    assert found.verdict is ExplainVerdict.HEALTHY


def test_an_error_of_a_program_that_began_after_a_success_is_no_teardown() -> None:
    for start in (SPAWNED, "Setting OMP_NUM_THREADS environment variable for each"):
        assert cause_of_lines(["Training completed", start, *RAISED, "RuntimeError: 7 heads", ""]) == "not_nccl"


def test_a_program_that_checks_itself_is_told_what_to_compare() -> None:
    found = explain_bytes(b"Assertion failed: the grid needs 12 ranks, and there are 16\n")
    assert "The program ended itself: Assertion failed: the grid needs 12 ranks" in found.summary
    assert "the number of its processes" in found.causes[0].remedy


def test_an_error_where_the_options_are_checked_is_a_refused_configuration() -> None:
    head = ["Traceback (most recent call last):", '  File "/srv/fit.py", line 9, in <module>', "    main()"]
    checked = [*head, '  File "/srv/megatron/arguments.py", line 88, in validate_args', "    assert not args.bf16"]
    found = explain_bytes("\n".join([*checked, "AssertionError", ""]).encode())
    assert found.causes[0].cause == "framework_argument_error"
    assert "assert not args.bf16 (raised at arguments.py:88 (validate_args))" in found.summary
    script = [*head[:1], '  File "/srv/menu", line 5, in <module>', "ModuleNotFoundError: No module named 'menu'"]
    ranked = [f"[rank3]: {line}" for line in (*checked, "AssertionError")]
    assert cause_of_lines([*script, *(["setting up"] * 60), *ranked]) == "framework_argument_error"
    for function in ("training_step", "validate", "validate_epoch"):
        trained = [*head, f'  File "/srv/fit.py", line 30, in {function}', "    assert loss.isfinite()"]
        assert cause_of_lines([*trained, "AssertionError"]) == "not_nccl"


def test_an_assertion_inside_torch_is_told_in_its_words() -> None:
    line = '[host] Rank 1, stack.size() INTERNAL ASSERT FAILED at "../torch/csrc/profiler.cpp":964, please report a bug'
    assert "INTERNAL ASSERT FAILED" in explain_bytes(f"{line}\n".encode()).summary


def test_what_an_engine_prints_after_it_was_told_to_stop_is_no_failure() -> None:
    ready = "(APIServer pid=7) INFO 03-01 10:00:30 [api_server.py:616] Starting vLLM server on http://0.0.0.0:8000"
    told = "(APIServer pid=7) INFO 03-01 11:00:30 [launcher.py:100] [shutdown] API server: shutdown triggered"
    dead = [
        "(APIServer pid=7) ERROR 03-01 11:00:31 [async_llm.py:704] AsyncLLM output_handler failed.",
        *(f"(APIServer pid=7) ERROR 03-01 11:00:31 [async_llm.py:704] {line}" for line in RAISED),
        "(APIServer pid=7) ERROR 03-01 11:00:31 [async_llm.py:704] vllm.v1.engine.exceptions.EngineDeadError: dead",
    ]
    verdicts = [
        explain_bytes("\n".join([*lines, ""]).encode()).verdict
        for lines in ([ready, told, *dead], [told, *dead], [ready, *dead, told])
    ]
    assert verdicts == [ExplainVerdict.HEALTHY, *[ExplainVerdict.NOT_ENOUGH_EVIDENCE] * 2]


def test_a_command_that_a_job_script_lacked_is_no_end_of_the_job_that_worked_on() -> None:
    lacked = "/var/spool/slurmd/job7/slurm_script: line 376: python: command not found"
    assert cause_of_lines([lacked]) == cause_of_lines([lacked, GAVE_UP]) == "not_nccl"
    assert cause_of_lines([lacked, *(f"31: step {i} of the evaluation" for i in range(60))]) != "not_nccl"


def test_a_collective_of_nccl_tests_that_failed_is_not_mended_by_another_that_passed() -> None:
    failed = "gpu-1: Test NCCL failure common.cu:401 'unhandled system error / '"
    passed = "# Collective test concluded: sendrecv_perf"
    assert explain_bytes(f"{failed}\n{passed}\n".encode()).verdict is not ExplainVerdict.HEALTHY
    assert explain_bytes(f"{passed}\n".encode()).verdict is ExplainVerdict.HEALTHY


def test_a_limit_of_file_watches_is_no_full_disk() -> None:
    watch = "[172468.6] [gpu-1:7:f] vfs_fuse.c:281 UCX ERROR inotify_add_watch(/tmp) failed: No space left on device"
    assert cause_of_lines([watch]) != "disk_full"
    assert cause_of_lines(["OSError: [Errno 28] No space left on device: '/out/model.pt'"]) == "disk_full"


def test_data_workers_that_abort_beside_an_error_of_the_program_are_its_echo() -> None:
    aborted = "RuntimeError: DataLoader worker (pid 4711) is killed by signal: Aborted. "
    assert cause_of_lines([*RAISED, aborted, *RAISED, "ValueError: too many values to unpack"]) == "not_nccl"
    assert cause_of_lines([*RAISED, aborted]) == "dataset_worker_died"


def test_an_unknown_option_is_told_with_the_program_s_own_help() -> None:
    found = explain_bytes(b"fit.py: error: unrecognized arguments: --models base\n").causes[0]
    assert found.cause == "framework_argument_error" and "--help" in found.remedy


OWN = ["Traceback (most recent call last):", '  File "/app/train.py", line 7, in <module>', "    main()"]
ASKS = "ValueError: chunk (2496) is larger than max_num_batched_tokens (2048). Please increase max_num_batched_tokens."
KEY = "omegaconf.errors.ConfigAttributeError: Key 'lr' is not in struct"
PYDANTIC = "pydantic_core._pydantic_core.ValidationError: 1 validation error for ModelConfig"
VALUE = "  Value error, length 262144 is too large for the model [type=value_error, input_value={}, input_type=dict]"
SRUN = "srun: error: Unable to create step for job 7: Invalid generic resource (gres) specification"


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ([*OWN, ASKS], "max_num_batched_tokens"),
        ([*OWN, KEY], "Key 'lr'"),
        ([*OWN, PYDANTIC, VALUE], "configuration: length 262144 is too large for the model"),
        ([SRUN], "gres"),
    ],
    ids=["a program that asks for another value", "Hydra", "pydantic", "Slurm"],
)
def test_a_refused_setting_is_named_only_if_it_ended_the_job(lines: list[str], says: str) -> None:
    found = explain_bytes("\n".join(lines).encode()).causes[0]
    assert (found.cause, says in found.verdict) == ("framework_argument_error", True), found.verdict
    work = [f"step {i}/40 loss: 2.{i}" for i in range(20)]
    later = explain_bytes("\n".join([*lines, *work, *OWN, "KeyError: 'labels'"]).encode()).causes[0]
    assert later.cause == "not_nccl" and "labels" in later.verdict


def test_an_error_that_wraps_any_other_is_none_of_the_configuration() -> None:
    wrapped = "hydra.errors.InstantiationException: Error in call to target 'torch.load': FileNotFoundError(2, 'x.pt')"
    assert cause_of_lines([*OWN, wrapped]) == "not_nccl"
