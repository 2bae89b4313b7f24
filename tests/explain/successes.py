"""Logs of runs that reached their end, as MLPerf's launchers write them: the formats' own lines, with our values.

    start, as the launcher echoes it -> noise of the start -> training, noise in between -> run_stop -> noise of the end

Without the success marker a log ends where the marker would stand: what is copied while a job runs has none.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator

Lines = Iterator[str]
T0_MS = 1762516800000
HOSTS = ("ember-03", "ember-04")


def mllog(ms: int, key: str, value: object = None, event: str = "POINT_IN_TIME", **about: object) -> str:
    """Return a line of MLPerf's logging package."""
    record = {
        "namespace": "", "time_ms": T0_MS + ms, "event_type": event, "key": key, "value": value,
        "metadata": {"file": "/workspace/bench/train.py", "lineno": 60 + len(key), **about},
    }  # fmt: skip
    return f":::MLLOG {json.dumps(record)}"


def _start(rng: random.Random) -> Lines:
    job = rng.randrange(100, 9999)
    yield f"+ echo 'Beginning trial {rng.randrange(1, 9)} of 10'"
    yield f":::DLPAL /lustre/img/bench.sqsh {job} 2 {HOSTS[0]},{HOSTS[1]} 'unknown' NODES_02x08x032"
    yield ':::SYSJSON {"submitter":"example","division":"closed","status":"Available on-premise","number_of_nodes":"2"}'
    yield f"+ srun --ntasks=2 --container-name=bench_{job} bash -c 'sync && echo 3 > /proc/sys/vm/drop_caches'"
    yield mllog(0, "cache_clear", True)
    yield mllog(900, "submission_benchmark", "bench")
    yield mllog(901, "init_start", None, "INTERVAL_START")


def _steps(rng: random.Random) -> Iterator[tuple[int, float]]:
    loss = 4.0
    for step in range(1, 41):
        loss *= 0.93 + rng.random() / 50
        yield step, loss


def _torch(rng: random.Random) -> Lines:
    for step, loss in _steps(rng):
        yield f"{rng.randrange(16)}: iter {step * 50:6d}  loss {loss:.4f}  lr 2.0e-04  {rng.randrange(90, 99)} ms"
        if step % 10 == 0:
            yield "0: " + mllog(step * 5000, "tracked_stats", {"throughput": 4121.5 + loss}, step=step)


def _horovod(rng: random.Random) -> Lines:
    for step, loss in _steps(rng):
        yield (
            f"[1,{rng.randrange(8)}]<stdout>:Train Epoch #{step}: 100%|##########| 626/626 "
            f"[02:{step:02d}<00:00,  4.1it/s, loss={loss:.3f}]"
        )
        if step % 10 == 0:
            yield "[1,0]<stdout>:" + mllog(step * 5000, "eval_accuracy", 0.7 + step / 500, epoch_num=step)


def _smddp(rng: random.Random) -> Lines:
    yield "[1,mpirank:0,algo-1]<stdout>:Running smdistributed.dataparallel v1.8.0"
    yield "[1,mpirank:0,algo-1]<stdout>:SMDDP: Multi node ENA mode"
    for step, loss in _steps(rng):
        yield f"[1,mpirank:0,algo-1]<stdout>:Iteration: {step * 20}, Loss function: {loss:.3f}, lr: 0.0001"
        yield f"[1,mpirank:{rng.randrange(8)},algo-2]<stdout>:avg. samples / sec: {2411 + rng.randrange(90)}.71"


def _mxnet(rng: random.Random) -> Lines:
    for step, _ in _steps(rng):
        speed = 21200 + rng.randrange(400)
        yield (
            f"2025-11-07 12:{step:02d}:17,811 Node[0] Epoch[{step}] Batch [340-360]\tSpeed: {speed}.67 samples/sec\t"
            f"accuracy=0.{rng.randrange(100, 999)}"
        )
        yield f"2025-11-07 12:{step:02d}:22,628 Node[0] Epoch[{step}] Time cost=58.{step}"
        yield mllog(step * 58000, "eval_accuracy", 0.70 + step / 700, epoch_num=step)


def _nemo(rng: random.Random) -> Lines:
    for step, loss in _steps(rng):
        yield (
            f" 0: Training epoch 0, iteration {step * 2}/12000 | lr: 0.0004 | global_batch_size: 8 | "
            f"global_step: {step * 2} | reduced_train_loss: {loss:.4f} | train_step_timing in s: 0.1{step}"
        )


RUNS: dict[str, Callable[[random.Random], Lines]] = {
    "torch": _torch, "horovod": _horovod, "smddp": _smddp, "mxnet": _mxnet, "nemo": _nemo,
}  # fmt: skip

CLOSING = {"nemo": (" 0: `Trainer.fit` stopped: `max_steps=800` reached.",)}  # before the marker, and none itself

IMPORT = "Import of {name} from {module} failed with: Traceback (most recent call last):"
STALL = (
    "[1,0]<stderr>:[2025-11-07 12:14:29.089665: W /tmp/horovod/common/stall_inspector.cc:107] One or more tensors were "
    "submitted to be reduced, gathered or broadcasted by subset of ranks and are waiting for remainder of ranks for "
    "more "
    "than 60 seconds. This may indicate that different ranks are trying to submit different tensors or that only "
    "subset "
    "of ranks is submitting tensors, which will cause deadlock. "
)

# What healthy runs print before their first step.
START_NOISE: dict[str, tuple[str, ...]] = {
    "optional_import": (
        "9: " + IMPORT.format(name="quick_gelu", module="megatron.core.fusions.fused_bias_geglu"),
        '9:   File "/opt/NeMo/nemo/utils/import_utils.py", line 322, in safe_import_from',
        "9:     return getattr(imported_module, symbol), True",
        "9: AttributeError: module 'megatron.core.fusions.fused_bias_geglu' has no attribute 'quick_gelu'",
    ),
    "optional_module": (
        "INFO:nemo.utils.import_utils:Import of nvtx from nvtx failed with: Traceback (most recent call last):",
        '  File "/opt/NeMo/nemo/utils/import_utils.py", line 265, in safe_import',
        "    mod = importlib.import_module(module)",
        "ModuleNotFoundError: No module named 'nvtx'",
    ),
    "client_socket": (
        "[W socket.cpp:426] [c10d] The server socket cannot be initialized on [::]:29500 (errno: 97 - Address "
        "family not "
        "supported by protocol).",
        "[W socket.cpp:601] [c10d] The client socket has failed to connect to [ember-03]:29500 (errno: 111 - "
        "Connection "
        "refused).",
        "[I socket.cpp:606] [c10d] The client socket will be retried in 1 s.",
    ),
    "unknown_device": (
        "[rank2]:[W1107 12:02:31.105 ProcessGroupNCCL.cpp:4561] [PG ID 0 PG GUID 0 Rank 2]  using GPU 2 as device "
        "used by "
        "this process is currently unknown. This can potentially cause a hang if this rank to GPU mapping is "
        "incorrect.",
    ),
    "plugin": (
        "ember-03:411:1290 [0] NCCL INFO NET/Plugin: Could not find: libnccl-net.so. Using internal network plugin.",
        "ember-03:411:1290 [0] NCCL INFO NET/Plugin: Failed to find ncclCollNetPlugin_v8 symbol.",
    ),
    "sharp": (
        "ember-03:411:1290 [0] sharp_plugin.c:288 NCCL WARN NET/IB :SHARP coll init error: Cannot create SHArP "
        "job(-11)",
        "ember-03:411:1290 [0] NCCL INFO Cannot initialize CollNet, using point-to-point network instead",
    ),
    "slurm_nvml": ("slurmstepd: error: NVML: Failed to get Compute running procs(9): Insufficient Permissions",),
    "helper_step": (
        "srun: error: ember-04: task 1: Exited with exit code 1",
        "+ true  # the cache could not be dropped",
    ),
    "pmix": ("[ember-03:00411] PMIX ERROR: ERROR in file gds_ds12_lock_pthread.c at line 168",),
    "openib": (
        "WARNING: There was an error initializing an OpenFabrics device.",
        "  Local host:   ember-03",
        "  Local device: mlx5_bond_0",
    ),
    "dali": ("/opt/dali/pipeline/executor.cc:41: [warning] the prefetch queue ran empty; waiting for the reader",),
    "amp": ("Gradient overflow.  Skipping step, loss scaler 0 reducing loss scale to 32768.0",),
}

# What they print while they run, and go on.
MIDDLE_NOISE: dict[str, tuple[str, ...]] = {
    "stall": (STALL, "Stalled ops:allreduce.layer1.0.weight [ready ranks: 0, 1, 3]"),
    "stall_missing": (STALL, "Missing ranks:", "2: [DistributedAdam.allreduce.embedding]"),
    "overflow": ("0: [WARNING] overflow detected, setting loss scale to: 16384.0",),
    "accept": (
        "ember-04:702:988 [3] misc/socket.cc:77 NCCL WARN [Service thread] Accept failed Resource temporarily "
        "unavailable",
    ),
    "gid": ("ember-04:702:990 [3] NCCL INFO NET/IB : mlx5_2:1 Got async event : GID table change",),
    "retry": ("3: WARNING: reading shard 118 timed out, retrying (1/5)",),
    "worker_warning": (
        "UserWarning: This DataLoader will create 32 worker processes in total. Our suggested max number of worker in "
        "current system is 16, which is smaller than what this DataLoader is going to create.",
    ),
}

# What they print when their processes do not stop together; only where the marker stands above.
END_NOISE: dict[str, tuple[str, ...]] = {
    "recv_value": (
        "[rank7]:[W1107 13:41:02.221 TCPStore.cpp:115] [c10d] recvVector failed on SocketImpl(fd=66, "
        "addr=[ember-04]:41992, "
        "remote=[ember-03]:29500): failed to recv, got 0 bytes",
        "[rank7]:[W1107 13:41:02.223 TCPStore.cpp:106] [c10d] recvValue failed on SocketImpl(fd=66): Connection "
        "reset by peer",
    ),
    "should_dump": (
        "[rank7]:[W1107 13:41:03.221 ProcessGroupNCCL.cpp:1659] [PG ID 0 PG GUID 0(default_pg) Rank 7] Failed to "
        "check the "
        '"should dump" flag on TCPStore, (maybe TCPStore server has shut down too early), with error: Broken pipe',
    ),
    "not_destroyed": (
        "[rank0]:[W1107 13:41:03.006 ProcessGroupNCCL.cpp:1477] Warning: WARNING: destroy_process_group() was not "
        "called "
        "before program exit, which can leak resources. (function operator())",
    ),
    "aborted": (
        "5: ./run_and_time.sh: line 95: 298790 Aborted                 (core dumped) python train.py",
        "srun: error: ember-04: task 5: Exited with exit code 134",
    ),
    "async_system_error": (
        "30: terminate called after throwing an instance of 'c10::DistBackendError'",
        "30:   what():  [Rank 30] NCCL watchdog thread terminated with exception: NCCL error: unhandled system "
        "error (run "
        "with NCCL_DEBUG=INFO for details), NCCL version 2.22.3",
        "srun: error: ember-04: task 30: Exited with exit code 134",
    ),
    "proxy_close": (
        "ember-04:702:988 [3] proxy.cc:1495 NCCL WARN [Proxy Service 3] Failed to execute operation Close from rank 3, "
        "retcode 3",
        "ember-04:702:988 [3] misc/socket.cc:49 NCCL WARN socketProgress: Connection closed by remote peer "
        "ember-03<41244>",
    ),
    "segfault_at_exit": (
        "[ember-03:00411] *** Process received signal ***",
        "[ember-03:00411] Signal: Segmentation fault (11)",
        "[ember-03:00411] Signal code: Address not mapped (1)",
    ),
    "terminated": (
        "srun: error: ember-03: tasks 0-7: Terminated",
        "srun: Terminating StepId=364.20",
        "srun: error: ember-04: tasks 8-15: Terminated",
        "srun: Force Terminated StepId=364.20",
    ),
    "time_limit": (
        "0: slurmstepd: error: *** STEP 364.20 ON ember-03 CANCELLED AT 2025-11-07T15:10:39 DUE TO TIME LIMIT ***",
        "srun: error: ember-03: task 0: Terminated",
        "srun: Force Terminated StepId=364.20",
    ),
    "cancelled": ("0: slurmstepd: error: *** STEP 364.20 ON ember-03 CANCELLED AT 2025-11-07T15:10:39 ***",),
    "sigterm": (
        "W1107 13:41:09.118000 400 torch/distributed/elastic/multiprocessing/api.py:897] Sending process 411 closing "
        "signal SIGTERM",
    ),
    "flushed_late": tuple(f"{rank}: | distributed init (rank {rank}): env://" for rank in (1, 2, 5)),
    "timing": ("ENDING TIMING RUN AT 2025-11-07 01:42:51 PM", "RESULT,BENCH,,2126,example,2025-11-07 12:01:49 PM"),
    "runandtime": ("+ echo 'RUNANDTIME_STOP 1762523001'", "+ set -e"),
}

# What was in a buffer when the log was copied: no end of any kind.
LAST_LINES: dict[str, tuple[str, ...]] = {
    "distributed_init": ("4: | distributed init (rank 4): env://", "5: | distributed init (rank 5): env://"),
    "should_dump_warning": END_NOISE["should_dump"],
    "recv_value_warning": END_NOISE["recv_value"],
    "not_destroyed": END_NOISE["not_destroyed"],
    "evaluation": ("0: Running per image evaluation...", "0: DONE (t=14.11s)."),
}


def success_log(run: str, seed: int, start: str = "", middle: str = "", end: str = "", has_marker: bool = True) -> str:
    """Return a log of a run that succeeded, with one piece of noise at each of three places, or none."""
    rng = random.Random(f"{run}{seed}")
    steps = list(RUNS[run](rng))
    cut = rng.randrange(len(steps) // 3, len(steps) * 2 // 3)
    lines = [*_start(rng), *START_NOISE.get(start, ())]
    lines += [mllog(22000, "init_stop", None, "INTERVAL_END"), mllog(22001, "run_start", None, "INTERVAL_START")]
    lines += [*steps[:cut], *MIDDLE_NOISE.get(middle, ()), *steps[cut:], mllog(6_000_000, "eval_accuracy", 0.7603)]
    if has_marker:
        lines += CLOSING.get(run, ())
        lines += [mllog(6_001_000, "run_stop", None, "INTERVAL_END", status="success"), *END_NOISE.get(end, ())]
    else:
        lines += LAST_LINES.get(end, ())
    return "\n".join(lines) + "\n"


def many(run: str, has_marker: bool, count: int) -> Lines:
    """Yield logs with noise drawn for every place."""
    ends = END_NOISE if has_marker else LAST_LINES
    for seed in range(count):
        rng = random.Random(seed)
        start, middle, end = (rng.choice(sorted(kind)) for kind in (START_NOISE, MIDDLE_NOISE, ends))
        yield success_log(run, seed, start, middle, end, has_marker)
