"""Lines that look like a cause and are none: what Python ignored, a time limit after an error, an echo of HCCL."""

from __future__ import annotations

import pytest

from tests.explain.logs import cause_of_lines, explain_bytes

STEP = "step {}/900 loss: 2.{}"
IN_WORKER = (
    "Traceback (most recent call last):",
    '  File "/opt/torch/utils/data/_utils/signal_handling.py", line 66, in handler',
    "    _error_if_any_worker_fails()",
    "RuntimeError: DataLoader worker (pid 1109404) is killed by signal: Aborted. ",
)
IGNORED = "Exception ignored in: <function _MultiProcessingDataLoaderIter.__del__ at 0x7f1fce83f560>"
OUT_OF_MEMORY = (
    "Traceback (most recent call last):",
    '  File "/home/me/train.py", line 493, in main',
    "    loss = step(batch)",
    "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 522.00 MiB. GPU 0 has 39 GiB",
)
LIMIT = "slurmstepd: error: *** JOB 1879328 ON cn50 CANCELLED AT 2026-01-24T05:08:11 DUE TO TIME LIMIT ***"


def test_an_exception_that_python_ignored_is_no_cause() -> None:
    assert cause_of_lines([IGNORED, *IN_WORKER, *OUT_OF_MEMORY]) == "cuda_oom_masked"
    assert cause_of_lines([*IN_WORKER, *OUT_OF_MEMORY]) == "dataset_worker_died"


def test_an_error_after_one_that_python_ignored_counts() -> None:
    assert cause_of_lines([IGNORED, *IN_WORKER[:-1], "KeyError: 1", OUT_OF_MEMORY[-1]]) == "cuda_oom_masked"


@pytest.mark.parametrize("prefix", ["", "0: ", "(WorkerDict pid=77) ", "[rank1]: ", "[default0]:"])
def test_a_traceback_behind_one_that_python_ignored_counts(prefix: str) -> None:
    ignored = ("Exception ignored in: <function Cache.__del__ at 0x7f>", *IN_WORKER[:1], '  File "c.py", line 1, in f')
    lines = (*ignored, "AttributeError: 'NoneType' object has no attribute 'x'", *OUT_OF_MEMORY[:3])
    ecc = "RuntimeError: CUDA error: uncorrectable ECC error encountered"
    assert cause_of_lines([prefix + line for line in (*lines, ecc)]) == "xid_or_ecc"


def test_an_error_that_passes_through_wandb_ends_the_job_but_a_lost_socket_of_wandb_does_not() -> None:
    frames = (
        "Traceback (most recent call last):",
        '  File "/home/me/train.py", line 41, in <module>',
        "    wandb.log(row)",
        '  File "/opt/wandb/sdk/lib/sock_client.py", line 126, in _sendall_with_error_handle',
        "    sent = self._sock.send(data)",
    )
    assert cause_of_lines([*frames, "OSError: [Errno 28] No space left on device"]) == "disk_full"
    assert cause_of_lines([*frames, "BrokenPipeError: [Errno 32] Broken pipe"]) == "not_enough_evidence"


def test_an_own_error_shortly_before_the_time_limit_is_the_cause() -> None:
    work = [STEP.format(number, number) for number in range(100, 106)]
    assert cause_of_lines([*work, *OUT_OF_MEMORY, LIMIT]) == "cuda_oom_masked"
    assert cause_of_lines([*OUT_OF_MEMORY, *work, LIMIT]) == "scheduler_time_limit"  # the job worked on
    assert cause_of_lines([*OUT_OF_MEMORY, *["waiting for data"] * 100, LIMIT]) == "scheduler_time_limit"
    assert cause_of_lines([*work, LIMIT, *OUT_OF_MEMORY]) == "scheduler_time_limit"


def test_the_error_of_a_refused_hccl_call_is_an_echo() -> None:
    lines = (
        "[rank1]: Traceback (most recent call last):",
        '[rank1]:   File "/opt/vllm/distributed/base_device_communicator.py", line 35, in all_reduce',
        "[rank1]: RuntimeError: InnerRunOpApi:OpParamMaker.cpp:281 OPS function error: HcclAllreduce, error code is 6",
        "[rank1]: EI0006: [PID: 1292363] Getting socket times out. Reason: Remote Rank did not send the data in time.",
    )
    assert cause_of_lines(list(lines)) == "accelerator_runtime_ascend"


@pytest.mark.parametrize(("importer", "step"), [
    ("/opt/site-packages/torch/_inductor/mm_scaled.py", "python -m pip uninstall -y torch"),
    ("/home/me/torch/_inductor/mm_scaled.py", "git status"),
    ("/opt/vllm/attention.py", "python -m pip show torch"),
])  # fmt: skip
def test_packages_of_two_releases_are_named_with_the_one_to_reinstall(importer: str, step: str) -> None:
    lines = (
        "Traceback (most recent call last):",
        f'  File "{importer}", line 23, in <module>',
        "    from torch._inductor.kernel.mm_common import persistent_grid",
        "ImportError: cannot import name 'persistent_grid' from 'torch._inductor.kernel.mm_common' (/opt/torch/mm.py)",
    )
    explanation = explain_bytes("\n".join([*lines, ""]).encode())
    assert explanation.causes[0].cause == "version_mismatch"
    assert "torch._inductor.kernel.mm_common has no persistent_grid" in explanation.summary
    assert step in explanation.causes[0].remedy


@pytest.mark.parametrize(
    "error",
    [
        "ValueError: Number of microbatches (1) must be greater than or equal to the number of stages (8).",
        "ValueError: require 2 GPUs, but only 1 GPUs available",
        "Ambiguous value for argument 'model.data.splits_string=980,10,10'",
        "ValueError: loaded model_parallel_size 2 is different from saved mp_world_size 4",
        "ValueError: Expected a string path to an existing deepspeed config, or a dictionary. Received: ../zero2.json",
        "AssertionError: You are using an untested ZeRO Optimizer. Please add <\"zero_allow_untested_optimizer\">",
    ],
)  # fmt: skip
def test_options_that_do_not_fit_together_are_no_ordinary_error(error: str) -> None:
    lines = ("Traceback (most recent call last):", '  File "/opt/x/engine.py", line 9, in __init__', "    raise", error)
    assert cause_of_lines(list(lines)) == "framework_argument_error"


@pytest.mark.parametrize(
    "said",
    [
        "[WARNING] data parallel size 4 is different from saved mp_world_size 8, resharding",
        "INFO: number of layers in the checkpoint (32) must be read again",
        "The number of GPUs (6) should be a power of two for the best performance",
        "WARNING: flash attention disabled: cannot import name 'flash_attn_func' from 'flash_attn' (unknown location)",
    ],
)  # fmt: skip
def test_a_warning_about_options_or_packages_is_no_refusal(said: str) -> None:
    lines = (said, "Traceback (most recent call last):", '  File "t.py", line 3, in f', "    d[k]", "KeyError: 1")
    assert cause_of_lines(list(lines)) == "not_nccl"


def test_an_assertion_that_compares_two_options_in_a_constructor_is_about_options() -> None:
    lines = (
        "Traceback (most recent call last):",
        '  File "/opt/megatron/optimizer_param_scheduler.py", line 66, in __init__',
        "    assert self.lr_warmup_steps < self.lr_decay_steps",
        "AssertionError",
    )
    assert cause_of_lines(list(lines)) == "framework_argument_error"
    assert cause_of_lines([*lines[:2], "    assert self.loss < best", lines[3]]) == "not_nccl"
    popped = '  File "/home/me/ring_buffer.py", line 41, in pop'
    assert cause_of_lines([lines[0], popped, "    assert self.head == self.tail", lines[3]]) == "not_nccl"


def test_what_paddle_prints_of_a_sigterm_and_of_its_data_reader_is_an_echo() -> None:
    stopped = "FatalError: `Termination signal` is detected by the operating system."
    work = [f"step {number}/900 loss: 2.{number}" for number in range(6)]
    explanation = explain_bytes("\n".join([*work, "Traceback (most recent call last):", stopped, ""]).encode())
    assert not explanation.causes
    assert "SIGTERM from outside" in explanation.summary
    reader = "SystemError: (Fatal) Blocking queue is killed because the data reader raises an exception."
    frames = ("Traceback (most recent call last):", '  File "train.py", line 90, in train_epoch', "    next(loader)")
    assert cause_of_lines([*frames, reader, *frames, "KeyError: 1"]) == "not_nccl"
    assert "KeyError" in explain_bytes("\n".join([*frames, reader, *frames, "KeyError: 1", ""]).encode()).summary


def test_a_bus_error_in_the_words_of_ucx_is_read() -> None:
    assert (
        cause_of_lines(["[8d6b:3039 :0:3095] Caught signal 7 (Bus error: nonexistent physical address)"])
        == "shm_too_small"
    )


def test_data_that_another_rank_prepares_does_not_excuse_an_error() -> None:
    bars = [f"1: Map:  {i}%|#         | {i}000/39531 [00:0{i % 10}<00:14, 268{i}.45 examples/s]" for i in range(40)]
    raised = (
        "0: [rank0]: Traceback (most recent call last):", '0: [rank0]:   File "train.py", line 425, in <module>',
        "0: [rank0]:     tokenizer = load()",
        "0: [rank0]: FileNotFoundError: [Errno 2] No such file or directory: '/x/y'",
    )  # fmt: skip
    gave_up = "0: torch.distributed.elastic.multiprocessing.errors.ChildFailedError: "
    assert cause_of_lines([*raised, *bars, gave_up]) == "not_nccl"
    assert cause_of_lines([*raised, *bars]) == "unfinished"  # nothing has ended: somebody caught it
    steps = [f"1: step {i}/900 loss: 2.{i}" for i in range(40)]
    assert cause_of_lines([*raised, *steps]) == "unfinished"


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("A40 with CUDA capability sm_86 is not compatible with the current PyTorch installation.",
         "The installed PyTorch was not built for this GPU (a rank): A40 has sm_86."),
        ("ImportError: /e/site-packages/amp_C.cpython-312-x86_64-linux-gnu.so: undefined symbol: _ZN3c104cuda29c10",
         "A compiled extension was built for another release of torch (a rank): amp_C."),
        ("ImportError: /e/torch/lib/libtorch_cuda.so: undefined symbol: ncclMemFree",
         "An older NCCL library is found before torch's own (a rank): it has no ncclMemFree."),
        ("RuntimeError: CUDA error: no kernel image is available for execution on the device",
         "A program or an extension was not built for this GPU (a rank)."),
        ("libnuma: Warning: CUDA error: forward compatibility was attempted on non supported HW",
         "Software versions do not fit together (a rank): NCCL, CUDA, the driver or the GPU's generation."),
    ],
)  # fmt: skip
def test_the_headline_says_which_versions_do_not_fit(line: str, says: str) -> None:
    explanation = explain_bytes(f"{line}\n".encode())
    assert explanation.causes[0].cause == "version_mismatch"
    assert explanation.summary == says


def test_the_stack_that_numpy_shows_in_a_warning_is_no_traceback() -> None:
    warned = [
        "A module that was compiled using NumPy 1.x cannot be run in", "NumPy 2.1.1 as it may crash.", "",
        'Traceback (most recent call last):  File "/env/bin/torchrun", line 5, in <module>',
        "    from torch.distributed.run import main",
    ]  # fmt: skip
    going_on = [f"a1:2433131:243322{i} [{i}] NCCL INFO comm 0x5{i} rank {i} nranks 8 - Init COMPLETE" for i in range(8)]
    assert cause_of_lines([*warned, *going_on]) == "unfinished"
    assert cause_of_lines([*warned, "RuntimeError: Numpy is not available", *going_on]) == "not_nccl"


def test_a_bare_exception_is_the_program_s_error_but_not_within_a_sentence() -> None:
    frames = ("Traceback (most recent call last):", '  File "/opt/app/model.py", line 33, in get_sim')
    for prefix in ("", "[rank3]: "):
        lines = (*frames, "    raise Exception('unknown kind')", "Exception: unknown kind")
        assert cause_of_lines([f"{prefix}{line}" for line in lines]) == "not_nccl"
    work = [f"step {number}/900 loss: 2.{number}" for number in range(6)]
    assert cause_of_lines([*work, "the loader caught an Exception: retry", *work]) == "unfinished"


def test_what_a_program_logs_of_an_exception_that_it_handled_ends_no_run() -> None:
    work = [f"step {number}/900 loss: 2.{number}" for number in range(2)]
    for logged in (
        "ERROR: Exception: client disconnected",
        "WARNING:uploader: Exception: upload postponed",
        "WARNING:uploader: ValueError: upload postponed",
    ):
        assert cause_of_lines([*work, logged, *work]) == "unfinished"
    inner = ("Traceback (most recent call last):", "Exception: BrokenPipeError: [Errno 32] Broken pipe")
    assert cause_of_lines(list(inner)) != "not_nccl"


def test_the_report_of_lsf_is_an_end_but_hides_no_error_before_it() -> None:
    report = ("Successfully completed.", "", "Resource usage summary:", "    Turnaround time :      52046 sec.")
    assert cause_of_lines(["step 3/3 loss: 2.5", *report]) == "healthy"
    assert cause_of_lines(["torch.OutOfMemoryError: CUDA out of memory.", *report]) == "cuda_oom_masked"


def test_what_may_be_printed_before_the_end_is_no_end() -> None:
    assert (
        cause_of_lines(["step 3/3 loss: 2.5", "peak memory allocated: 31481 MiB reserved: 46892 MiB"]) == "unfinished"
    )


def test_a_number_of_iterations_in_a_setting_is_no_work() -> None:
    crash = "node-1 python[81]: Segmentation fault (core dumped)"
    settings = [f"summary of the run: max iters: {number}000 score {number}" for number in range(20)]
    assert cause_of_lines([crash, *settings]) == "segfault_worker"
    work = [f"INFO: Iters: {number}/900 || Lr: 0.01 || Loss: 2.{number}" for number in range(20)]
    assert cause_of_lines([crash, *work]) == "unfinished"


def test_a_crash_in_new_work_is_not_the_teardown_of_the_run_before() -> None:
    done = ["step 3/3 loss: 2.5", "Training completed"]
    crash = "failed (exitcode: -11) local_rank: 0 (pid: 4711) of binary: /opt/venv/bin/python"
    work = [f"step {number}/900 loss: 2.{number}" for number in range(20)]
    assert cause_of_lines([*done, crash]) == "teardown_after_success"
    assert cause_of_lines([*done, *work[:4], crash]) == "teardown_after_success"  # what another rank still prints
    assert cause_of_lines([*done, *work, crash]) == "segfault_worker"


def test_a_table_of_the_environment_is_no_failure() -> None:
    """detectron2 lists what it could not load, and trains without it."""
    table = (
        "detectron2._C           not built correctly: /opt/d2/_C.cpython-37m-x86_64-linux-gnu.so: undefined symbol: {}"
    )
    symbol = "_ZNK2at6Tensor4add_ERKS0_RKN3c106ScalarE"
    lines = [table.format(symbol), *(STEP.format(n, n) for n in range(30))]
    assert explain_bytes("\n".join(lines).encode()).causes == ()
    assert cause_of_lines([table.format(symbol), f"ImportError: /opt/d2/_C.so: undefined symbol: {symbol}"]) == (
        "version_mismatch"
    )


def test_pairs_without_p2p_are_no_symptom_if_nccl_uses_shared_memory() -> None:
    refused = "gpu-1:7:7 [1] NCCL INFO Could not enable P2P between dev 1(=3b000) and dev 0(=18000)"
    shm = "gpu-1:7:7 [1] NCCL INFO Channel 00 : 1[3b000] -> 0[18000] via direct shared memory"
    assert cause_of_lines([refused]) == "p2p_broken"
    assert explain_bytes("\n".join([refused, shm, refused, shm]).encode()).causes == ()


def test_a_crash_while_a_worker_raises_what_nccl_reported_is_a_consequence() -> None:
    warn = "node1:908:1048 [0] misc/socket.cc:484 NCCL WARN socketStartConnect: "
    unreachable = f"{warn}Connect to fe80::1%11<42363> failed : Network is unreachable"
    error = "ERROR 11-11 09:36:27 worker_base.py:464] RuntimeError: NCCL error: unhandled system error (run with ...)"
    crash = "*** SIGSEGV received at time=1731346587 on cpu 0 ***"
    assert cause_of_lines([unreachable, error, crash]) == "wrong_socket_interface"
    assert cause_of_lines([crash, unreachable, error]) == "segfault_worker"
    assert explain_bytes(f"{error}\n{crash}\n".encode()).causes == ()


def test_a_call_that_failed_in_another_process_is_secondary() -> None:
    frame = ("Traceback (most recent call last):", '  File "/opt/app/client.py", line 77, in create')
    call = "Exception: Call to collective_rpc method failed: ray::RayWorkerWrapper.execute_method() (pid=1117)"
    assert cause_of_lines([*OUT_OF_MEMORY, *frame, call]) == "cuda_oom_masked"


def test_a_count_of_no_failures_is_not_unusual() -> None:
    lines = ["Accuracy (successful entries): 80.00% | attempted=5 successful=5 failed=0", "slurm: job requeued, bye"]
    assert explain_bytes("\n".join(lines).encode()).unusual == ()
