"""Ends of runs that failed, most of them without a word about why, and the healthy lines that may stand above them.

Whoever reads such a log need not know the cause; nobody may say of it that nothing failed.
"""

from __future__ import annotations

STEPS = range(40, 52)

# What a run prints while all is well.
HEALTHY_HEADS: dict[str, tuple[str, ...]] = {
    "transformers": tuple(
        f"{{'loss': {2.9 - step / 100:.4f}, 'grad_norm': 0.{step}21, 'learning_rate': 1.9e-05, 'epoch': 0.{step}}}"
        for step in STEPS
    ),
    "tqdm": tuple(
        f"\r {step}%|{'█' * (step // 4):25}| {step * 9}/900 [{step // 6:02d}:{step:02d}<11:{step:02d},  1.{step}s/it]"
        for step in STEPS
    ),
    "megatron": tuple(
        f" [2026-03-11 07:{step}:07] iteration {step * 10:8d}/  500000 | consumed samples: {step * 5120:12d} | "
        f"elapsed time per iteration (ms): 61{step}.3 | learning rate: 1.500000E-04 | global batch size:   512 | "
        f"lm loss: 2.{step}6411E+00 | loss scale: 1.0 | grad norm: 0.4{step} | number of skipped iterations:   0 |"
        for step in STEPS
    ),
    "lightning": tuple(
        f"Epoch 3:  {step}%|####      | {step * 12}/1200 [04:{step}<05:{step}, 2.{step}it/s, v_num=8, loss=0.3{step}]"
        for step in STEPS
    ),
    "torchtitan": tuple(
        f"[rank0]:[titan] 2026-03-11 07:{step}:31,204 - root - INFO - step: {step * 10:5d}  loss:  3.{step}18  "
        f"memory: 61.02GiB(76.91%)  tps: 6,2{step}  tflops: 312.{step}  mfu: 31.{step}%"
        for step in STEPS
    ),
}

TRACEBACK = (
    "Traceback (most recent call last):",
    '  File "/srv/job/fit.py", line 219, in <module>',
    "    main()",
    '  File "/srv/job/fit.py", line 164, in main',
    "    loss.backward()",
)
TABLE = (
    "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ",
    "============================================================",
    "fit.py FAILED",
    "------------------------------------------------------------",
    "Failures:",
    "  <NO_OTHER_FAILURES>",
    "------------------------------------------------------------",
    "Root Cause (first observed failure):",
    "[0]:",
    "  time      : 2026-03-11_07:52:40",
    "  host      : trn-04",
    "  rank      : 5 (local_rank: 5)",
    "  exitcode  : 1 (pid: 88123)",
    "  error_file: <N/A>",
    "============================================================",
)
ELASTIC = "E0311 07:52:40.118000 88001 torch/distributed/elastic/multiprocessing/api.py:869] failed"

FAILING_ENDS: dict[str, tuple[str, ...]] = {
    # A torch program that ends with an exception, and what its launcher says of it.
    "peer_memory": (
        *TRACEBACK,
        "RuntimeError: CUDA error: Invalid access of peer GPU memory over nvlink or a hardware error",
        *TABLE,
    ),
    "invalid_usage_aborted": (
        *TRACEBACK,
        "torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/distributed/c10d/NCCLUtils.hpp:317, invalid "
        "usage (run with NCCL_DEBUG=WARN for details), NCCL version 2.21.5",
        "Aborted (core dumped)",
    ),
    "internal_error": (*TRACEBACK, "torch.distributed.DistBackendError: NCCL error: internal error - please report"),
    "system_error": (*TRACEBACK, "RuntimeError: NCCL Error 2: unhandled system error"),
    "cuda_unknown": (*TRACEBACK, "RuntimeError: CUDA error: unknown error"),
    "cuda_busy": (*TRACEBACK, "RuntimeError: CUDA error: all CUDA-capable devices are busy or unavailable"),
    "cublas": (
        *TRACEBACK,
        "RuntimeError: CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasGemmEx( ...)`",
    ),
    "cudnn": (*TRACEBACK, "RuntimeError: cuDNN error: CUDNN_STATUS_EXECUTION_FAILED"),
    "deep_ep": (*TRACEBACK, "RuntimeError: DeepEP error: timeout (dispatch CPU)"),
    "timeout_error": (*TRACEBACK, "TimeoutError: the parameter server did not answer in 300 s"),
    "connection_error": (*TRACEBACK, "ConnectionRefusedError: [Errno 111] Connection refused"),
    "keyboard_interrupt": (*TRACEBACK, "KeyboardInterrupt"),
    "own_error_glued": (*TRACEBACK, "fit.errors.LossIsNan"),
    "bare_exception": (*TRACEBACK, "Exception"),
    "system_exit": (*TRACEBACK, "SystemExit: 3"),
    "assertion": (*TRACEBACK, "AssertionError"),
    "table_only": TABLE,
    "agent_exit_1": (f"{ELASTIC} (exitcode: 1) local_rank: 5 (pid: 88123) of binary: /usr/bin/python3",),
    "agent_abort": (f"{ELASTIC} (exitcode: -6) local_rank: 2 (pid: 88120) of binary: /usr/bin/python3",),
    "agent_sigterm": ("torch.distributed.elastic.multiprocessing.api.SignalException: Process 88001 got signal: 15",),
    "watchdog_thread": (
        "terminate called after throwing an instance of 'c10::DistBackendError'",
        "  what():  [PG ID 0 PG GUID 0(default_pg) Rank 5] Process group watchdog thread terminated with exception: ",
    ),
    # A traceback that is cut, mangled or another language's.
    "cut_traceback": TRACEBACK[:4],
    "cut_at_error": (*TRACEBACK, "RuntimeError: "),
    "cut_in_word": (*TRACEBACK, "Runtim"),
    "terminate_called": ("terminate called after throwing an instance of 'c10::Error'",),
    "terminate_alone": ("terminate called without an active exception", "Aborted"),
    "std_bad_alloc": ("terminate called after throwing an instance of 'std::bad_alloc'", "  what():  std::bad_alloc"),
    "glibc_corruption": ("corrupted size vs. prev_size in fastbins", "Aborted (core dumped)"),
    "fatal_python": (
        "Fatal Python error: Aborted",
        "",
        "Thread 0x00007f2b8c1fd700 (most recent call first):",
        "  <no Python frame>",
    ),
    "python_bus_error": (
        "Fatal Python error: Bus error",
        "",
        "Current thread 0x00007f1d2c0c0740 (most recent call first):",
    ),
    "glog_fatal": ("F0311 07:52:40.118112 88123 coordination_service_agent.cc:501] Check failed: status.ok()",),
    "rust_panic": (
        "thread 'tokio-runtime-worker' panicked at src/loader.rs:88:14:",
        "called `Option::unwrap()` on `None`",
    ),
    "cuda_assert": (
        "/pytorch/aten/src/ATen/native/cuda/Loss.cu:250: nll_loss_forward_reduce_cuda_kernel_2d: block: [0,0,0], "
        "thread: [7,0,0] Assertion `t >= 0 && t < n_classes` failed.",
    ),
    # GPUs that are not NVIDIA's.
    "amd_memory_fault": (
        "Memory access fault by GPU node-3 (Agent handle: 0x55d0c8a1f6b0) on address 0x7f10a0a00000. Reason: Unknown.",
        "Aborted (core dumped)",
    ),
    "amd_hang": (
        "HW Exception by GPU node-6 (Agent handle: 0x5625f1c40b90) reason :GPU Hang",
        "Aborted (core dumped)",
    ),
    "hip_error": (*TRACEBACK, "RuntimeError: HIP error: unspecified launch failure"),
    "hccl": (
        *TRACEBACK,
        "RuntimeError: [ERROR] 2026-03-11-07:52:40 (PID:88123, Device:5, RankID:5) ERR02200 DIST call hccl api failed.",
    ),
    "npu_oom": (
        *TRACEBACK,
        "RuntimeError: NPU out of memory. Tried to allocate 1.22 GiB (NPU 5; 60.97 GiB total capacity)",
    ),
    "xla_internal": (
        *TRACEBACK,
        "jaxlib.xla_extension.XlaRuntimeError: INTERNAL: Failed to execute XLA Runtime executable",
    ),
    "jax_barrier": (
        *TRACEBACK,
        "jaxlib.xla_extension.XlaRuntimeError: DEADLINE_EXCEEDED: Barrier timed out. Id: [Init]PjRT_Client_Connect::0.",
    ),
    # Launchers and schedulers.
    "srun_exit": ("srun: error: trn-04: task 5: Exited with exit code 1",),
    "srun_many": ("srun: error: trn-[04-07]: tasks 32-63: Exited with exit code 134",),
    "srun_terminated": (
        "srun: Terminating StepId=71044.0",
        "slurmstepd: error: *** STEP 71044.0 ON trn-04 FAILED (non-zero exit code) ***",
    ),
    "srun_node_fail": (
        "srun: error: Node failure on trn-05",
        "srun: error: Timed out waiting for job step to complete",
    ),
    "mpi_abort": (
        "MPI_ABORT was invoked on rank 5 in communicator MPI_COMM_WORLD",
        "with errorcode 1.",
        "NOTE: invoking MPI_ABORT causes Open MPI to kill all MPI processes.",
    ),
    "mpirun_nonzero": (
        "mpirun detected that one or more processes exited with non-zero status, thus causing",
        "the job to be terminated. The first process to do so was:",
        "  Process name: [[47012,1],5]",
        "  Exit code:    1",
    ),
    "prterun": ("prterun noticed that process rank 5 with PID 88123 on node trn-04 exited on signal 6 (Aborted).",),
    "hydra": (
        "=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES",
        "=   RANK 5 PID 88123 RUNNING AT trn-04",
        "=   KILLED BY SIGNAL: 6 (Aborted)",
    ),
    "prun_lost": ("ORTE has lost communication with a remote daemon.",),
    "deepspeed": (
        "[2026-03-11 07:52:40,118] [ERROR] [launch.py:325:sigkill_handler] ['/usr/bin/python3', '-u', 'fit.py', "
        "'--local_rank=5'] exits with return code = 1",
    ),
    "called_process": (
        *TRACEBACK[:1],
        "subprocess.CalledProcessError: Command '['/usr/bin/python3', 'fit.py']' returned non-zero exit status 1.",
    ),
    "spawn": ("torch.multiprocessing.spawn.ProcessExitedException: process 5 terminated with exit code 1",),
    "shell_killed": ("./run.sh: line 31: 88123 Killed                  python fit.py --nodes 4",),
    "shell_abort": ("./run.sh: line 31: 88123 Aborted                 (core dumped) python fit.py --nodes 4",),
    "make_error": ("make: *** [Makefile:14: train] Error 1",),
    "exit_code": ("Process finished with exit code 137",),
    "command_exited": ("Command exited with non-zero status 1", "8123.44user 91.02system 2:14:18elapsed 102%CPU"),
    "ray_actor": (
        "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.",
        "\tclass_name: WorkerDict",
        "The actor died because its worker process has died. Worker exit type: SYSTEM_ERROR",
    ),
    "ray_job": ("2026-03-11 07:52:40,118\tERR cli.py:70 -- Job 'raysubmit_Yq2' failed",),
    "vllm_engine": ("RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}",),
    "sglang": (
        "[2026-03-11 07:52:40] Received sigquit from a child process. It usually means the child failed.",
        "Killed",
    ),
    "kubernetes": (
        "    State:          Terminated",
        "      Reason:       Error",
        "      Exit Code:    1",
        "pod/fit-worker-5   0/1     Error      0          2h14m",
    ),
    "kubernetes_backoff": (
        "Warning  BackoffLimitExceeded  4s   job-controller  Job has reached the specified backoff limit",
    ),
    "sagemaker": ("ERROR sagemaker-training-toolkit: ExecuteUserScriptError:", "ExitCode 1", 'ErrorMessage ""'),
    "status_failed": ("Job 71044 finished with status FAILED, exit code 1:0",),
    "nvlink_sdk": ("fit.py: nvls.cc:412: void bind(size_t): Assertion `status == CUDA_SUCCESS' failed.", "Aborted"),
}
