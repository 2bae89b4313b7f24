"""What serving engines and their transfer libraries print decides headline and steps."""

from __future__ import annotations

import pytest

from preflight.model.explanation import ExplainVerdict
from tests.explain.logs import explain_bytes

ENGINE = "(Worker_TP0 pid=74) ERROR 05-19 14:01:02 [multiproc_executor.py:597] WorkerProc failed to start."
FRAMES = ("Traceback (most recent call last):", '  File "/opt/vllm/device_communicators/comm.py", line 88, in __init__')
AT = "[1745499308.854013] [pod-7:760 :0] "
ANSWERS = {
    ("RuntimeError: Error happened when batch testing peer-to-peer access from (0, 1) to (1, 0):",): (
        "p2p_broken", "own test of direct copies", "expandable_segments:True",
    ),
    ("E0311 07:52:40.118 4711 rdma_transport.cpp:323] Memory region not registered by any active device(s): 0x7f",): (
        "ib_broken", "Mooncake's transfer engine", "modprobe nvidia_peermem",
    ),
    ("# Out of bounds values : 4 FAILED", "# Avg bus bandwidth    : 13.0468", "# Collective test concluded"): (
        "p2p_broken", "nccl-tests", "NCCL_SHM_DISABLE=1",
    ),
    ("RuntimeError: CUDA error: invalid device ordinal",): (
        "gpu_not_visible_in_container", "more processes than it shows GPUs", "--tensor-parallel-size",
    ),
    ("RuntimeError: No CUDA GPUs are available",): ("gpu_not_visible_in_container", "No GPU is", "nvidia-smi -L"),
    ("NCCL WARN nvmlDeviceGetHandleByPciBusId() failed: Not Found",): (
        "gpu_not_visible_in_container", "hides this GPU", "NCCL_HOSTID",
    ),
    ("RuntimeError: Failed: Assertion error runtime.cu:41 'nvshmem_team_split_strided(TEAM_WORLD, rank) == 0'",): (
        "nvshmem_or_deepep", "another number of processes", "NVSHMEM_DEBUG=INFO",
    ),
    ("RuntimeError: No HIP GPUs are available",): ("gpu_not_visible_in_container", "No GPU is visible", "/dev/kfd"),
    ("nvidia-container-cli: requirement error: unsatisfied condition: cuda>=12.8",): (
        "gpu_not_visible_in_container", "newer NVIDIA driver", "use an image for this driver",
    ),
    ("nvidia-container-cli: initialization error: nvml error: driver/library version mismatch: unknown",): (
        "version_mismatch", "driver was updated", "reboot the node",
    ),
    ("Failed to initialize NVML: Unknown Error",): (
        "gpu_not_visible_in_container", "lost its GPU devices", "Start the container again",
    ),
    ("E0311 07:52:40.118 4711 rdma_context.cpp:203] Failed to register memory 0x7f: Cannot allocate memory [12]",): (
        "ib_broken", "limit of locked memory", "--ulimit memlock=-1",
    ),
    ("RuntimeError: Can't find nvmlDeviceGetNvLinkRemoteDeviceType: undefined symbol",): (
        "version_mismatch", "older than torch expects", "update the NVIDIA driver",
    ),
    ("TERM_OWNER: job killed by owner.",): ("scheduler_cancelled", "cancelled from outside", "bhist -l JOBID"),
    ("NET/OFI Unexpected number of remote rails for dev 2. Expected 1 but got 4",): (
        "nccl_plugin_problem", "different numbers of network adapters", "OFI_NCCL_FORCE_NUM_RAILS",
    ),
    ("Failed: Cuda error /workspace/csrc/custom_all_reduce.cuh:164 'invalid argument'",): (
        "p2p_broken", "own all-reduce could not use the GPU memory", "--disable-custom-all-reduce",
    ),
    (*FRAMES, "    handle = torch_symm_mem.rendezvous(self.buffer, self.group.group_name)", "RuntimeError: CUDA driver "
     "error: the operation cannot be performed in the present state", ENGINE): (
        "p2p_broken", "symmetric memory", "VLLM_ALLREDUCE_USE_SYMM_MEM=0",
    ),
    (*FRAMES, "    self.workspace = flashinfer_comm.create_allreduce_fusion_workspace(", 
     "RuntimeError: [SymmDeviceMemory] no multicast", ENGINE): (
        "p2p_broken", "FlashInfer's fused all-reduce", "fuse_allreduce_rms",
    ),
    (f"{AT}ib_mlx5_dv.c:452 UCX  ERROR   mlx5dv_devx_obj_create(CQ) failed on mlx5_1, syndrome 0x2aac7c: Remote I/O "
     "error",): ("ib_broken", "UCX could not set up its queues", "UCX_TLS"),
    (f"{AT}ib_device.c:1332 UCX  ERROR   ibv_create_ah(dlid=49152 sl=0 port=1 src_path_bits=0 dgid=fe80::1 flow_label="
     "0xffffffff sgid_index=0 traffic_class=0) for UD mlx5 connect on mlx5_0 failed: No such device",): (
        "ib_broken", "fe80::", "UCX_IB_GID_INDEX",
    ),
    ("E0917 16:23:13.204995 4058290 worker_pool.cpp:294] Worker: Process failed for slice (opcode: 1, length: 3584, "
     "local_nic: mlx5_7, retry_cnt: 0): local protection error",): ("ib_broken", "Mooncake", "register"),
    ("Error: No available node types can fulfill resource request {'node:192.0.2.7': 0.001, 'GPU': 1.0}.",): (
        "framework_argument_error", "192.0.2.7", "VLLM_HOST_IP",
    ),
    (*FRAMES, "ValueError: Current node has no GPU available. current_node_resource={'CPU': 8.0}"): (
        "framework_argument_error", "a node is missing in Ray", "ray status",
    ),
    ("Total Usage:", " 0.0/1.0 GPU", "Pending Demands:", " {'GPU': 1.0} * 2 (PACK): 1+ pending placement groups"): (
        "framework_argument_error", "has registered no GPUs", "with 2 x 1.0 that are asked for",
    ),
    (*FRAMES, "ValueError: The input size is not aligned with the quantized weight shape."): (
        "framework_argument_error", "quantized weight shape", "smaller tensor-parallel size",
    ),
    ("[ERROR] HCCL(36,worker):2026-05-13-02:25:58.068.817 [op_base.cc:974][36][Init][CommRootInfo]HcclCommInitRootInfo "
     "failed.",): ("accelerator_runtime_ascend", "could not join the other ranks over HCCL", "plog"),
    ("/src/nvshmem/src/modules/transport/ibrc/ibrc.cpp:418: non-zero status: 22 ibv_modify_qp failed",
     "/src/nvshmem/src/host/init/init.cu:1007: non-zero status: 7 nvshmem setup connections failed"): (
        "nvshmem_or_deepep", "NVSHMEM could not start", "NVSHMEM_IB_GID_INDEX",
    ),
    ('!!!!!!! Segfault encountered !!!!!!!', '  File "/libvgpu/src/cuda/memory.c", line 582, in cuMemCreate',
     '  File "misc/cudawrap.cc", line 92, in ncclCuMemHostEnable()'): (
        "known_bug", "HAMi's library", "without HAMi",
    ),
    ('Thread 90 (idle): "MainThread"', "    poll (libc.so.6)", "    recv_object (distributed/parallel_state.py:1050)",
     "    recv_tensor_dict (distributed/parallel_state.py:1228)", "    event_loop_pp (scheduler_pp_mixin.py:95)"): (
        "hang_no_error", "recv_object (distributed/parallel_state.py:1050)", "preflight stuck",
    ),
    ("Thread 90 (idle): forward", "    ncclCommWindowRegister (pynccl_wrapper.py:540)", "    forward (model.py:3)"): (
        "hang_no_error", "ncclCommWindowRegister", "without --enable-symm-mem",
    ),
    (f"{AT}ib_mlx5_log.c:179 UCX  ERROR Local protection error on mlx5_0:1/RoCE (synd 0x4 vend 0x51 hw_synd 0/2)",): (
        "ib_broken", "UCX or Mooncake", "register",
    ),
    (*FRAMES, "TimeoutError"): ("not_nccl", "timed out waiting", "did not answer"),
    (*FRAMES, "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`."): (
        "cuda_oom_masked", "KV cache of the serving engine", "--max-model-len",
    ),
    (*FRAMES, "Exception: Capture cuda graph failed: CUDA out of memory. Tried to allocate 448.00 MiB."): (
        "cuda_oom_masked", "out of GPU memory", "--mem-fraction-static",
    ),
}  # fmt: skip


@pytest.mark.parametrize("lines", ANSWERS, ids=lambda lines: lines[-1][:50])
def test_what_an_engine_prints_decides_headline_and_steps(lines: tuple[str, ...]) -> None:
    cause, headline, step = ANSWERS[lines]
    found = explain_bytes("\n".join(lines).encode()).causes[0]
    assert found.cause == cause and headline in found.verdict
    assert step in found.remedy
    assert ("iommu" not in found.remedy.lower()) or cause != "p2p_broken"


STARTS = "INFO 07-15 04:27:53 [api_server.py:1787] vLLM API server version 0.10.0"
SERVES = 'INFO:     10.0.0.2:41712 - "GET /health HTTP/1.1" 200 OK'
FAILED = "E0917 16:23:13.204995 4058290 worker_pool.cpp:294] Submission rejected: metadata not found for segment ram"


def test_a_server_that_goes_on_after_errors_is_not_called_free_of_failures() -> None:
    found = explain_bytes("\n".join([STARTS, FAILED, *[SERVES] * 6, ""]).encode())
    assert found.verdict is ExplainVerdict.UNFINISHED
    assert "shows errors and no end" in found.summary
    assert [quote.text for quote in found.unusual] == [FAILED]


FELL_BACK = [
    *FRAMES, "    self.workspace = flashinfer_comm.create_allreduce_fusion_workspace(",
    "RuntimeError: multicast is not supported by the CUDA driver",
]  # fmt: skip


@pytest.mark.parametrize(
    ("ready", "serves"),
    [
        ("INFO 07-15 04:29:01 [api_server.py:1818] Starting vLLM API server 0 on http://0.0.0.0:8000", [SERVES]),
        ("[2026-03-01 10:00:30] The server is fired up and ready to roll!", [SERVES] * 2),
        (
            "",
            [
                f"[2026-03-01 10:00:{i:02} TP0] Decode batch, #running-req: 3, #token: 9, #queue-req: 0"
                for i in range(5)
            ],
        ),
    ],
    ids=["vllm", "sglang", "the same load at other times"],
)
def test_no_error_ended_a_server_that_became_ready_after_it(ready: str, serves: list[str]) -> None:
    found = explain_bytes("\n".join([STARTS, *FELL_BACK, ready, *serves, ""]).encode())
    assert found.verdict is ExplainVerdict.UNFINISHED, found.summary
    ended = explain_bytes("\n".join([STARTS, *FELL_BACK, ENGINE, ""]).encode())
    assert ended.causes[0].cause == "p2p_broken"


def test_a_frame_that_raised_nothing_of_cuda_accuses_no_path_between_gpus() -> None:
    later = [*["INFO 07-15 04:28:00 [x.py:1] loading"] * 80, *FRAMES, "RuntimeError: CUDA driver error: out of date"]
    text = "\n".join([STARTS, *FELL_BACK[:-1], "ValueError: max_token_num is too small", *later, ENGINE, ""])
    assert explain_bytes(text.encode()).causes[0].cause != "p2p_broken"


def test_a_query_that_an_adapter_refuses_and_a_stack_of_a_debugger_are_no_failure() -> None:
    query = f"{AT}ib_mlx5dv_md.c:1 UCX  ERROR mlx5dv_devx_general_cmd(QUERY_HCA_CAP) failed on mlx5_2: Remote I/O error"
    frame = (
        "#1  0x00007f in c10d::ProcessGroupNCCL::WorkNCCL::checkTimeout(std::optional<int>) () from libtorch_cuda.so"
    )
    hccl = "[INFO] HCCL(1,python):2026-03-01 HcclCommInitClusterInfo failover is enabled"
    for line in (query, frame, hccl):
        found = explain_bytes("\n".join([line, *[f"{{'loss': {i}.0, 'epoch': 0.{i}}}" for i in range(2)], ""]).encode())
        assert found.causes == (), line


def test_a_log_that_ends_with_an_error_is_not_called_still_running() -> None:
    found = explain_bytes("\n".join([STARTS, *[SERVES] * 6, FAILED, ""]).encode())
    assert found.verdict is ExplainVerdict.NOT_ENOUGH_EVIDENCE and found.unusual


def test_a_warning_of_a_server_that_works_changes_nothing() -> None:
    warning = "WARNING 07-15 04:27:59 [utils.py:12] cannot find a configuration for this GPU, performance may be lower"
    found = explain_bytes("\n".join([STARTS, warning, *[SERVES] * 6, ""]).encode())
    assert found.verdict is ExplainVerdict.UNFINISHED
    assert "shows no failure" in found.summary and found.unusual == ()


def test_a_quoted_line_starts_with_its_message_if_its_prefixes_are_long() -> None:
    long = "(EngineCore_DP0 pid=1305) (RayWorkerWrapper pid=344, ip=10.2.30.130) ERROR 12-12 22:31:21 [base.py:275] "
    found = explain_bytes(f"{STARTS}\n{long}The frobnicator found no segment for the peer, check failed\n".encode())
    assert [quote.text for quote in found.unusual] == ["… The frobnicator found no segment for the peer, check failed"]


REFUSED = "transport/p2p.cc:275 NCCL WARN Cuda failure 'peer access is not supported between these two devices'"


@pytest.mark.parametrize(
    ("lines", "cause"),
    [
        ((f"fusion-node-0:81:90 [0] {REFUSED}",), "p2p_broken"),
        ((*FRAMES, "    hdl = symm_mem.rendezvous(buf)",
          "torch.distributed.DistNetworkError: Connection closed by peer [10.0.0.2]:4321"), "remote_peer_died"),
    ],
    ids=["a host's name", "a frame of training"],
)  # fmt: skip
def test_a_word_of_an_engine_alone_proves_nothing(lines: tuple[str, ...], cause: str) -> None:
    found = explain_bytes("\n".join(lines).encode()).causes[0]
    assert found.cause == cause and "engine" not in found.verdict and "vLLM" not in found.remedy


def test_training_beside_an_engine_that_runs_out_of_memory_gets_the_steps_of_training() -> None:
    steps = [f"{{'loss': 2.{i}, 'epoch': 0.{i}}}" for i in range(1, 30)]
    error = "torch.OutOfMemoryError: CUDA out of memory."
    for lines, step in (((*steps, *FRAMES, error), "per-device batch"), ((*FRAMES, error), "smaller micro batch")):
        found = explain_bytes("\n".join(["vLLM is using nccl==2.21.5", *lines]).encode())
        assert step in found.causes[0].remedy


@pytest.mark.parametrize(
    "line",
    [
        "+ export TORCH_CPP_LOG_LEVEL=ERROR # fail on invalid",
        "[INFO] config: log_level: ERROR on_invalid: fail",
        "E0000 00:00:1730000000.123456 1234 cuda_dnn.cc:8310] Unable to register cuDNN factory",
        "ERROR:jax._src.xla_bridge:Unable to initialize backend 'tpu'",
    ],
)
def test_a_level_in_a_setting_and_what_libraries_print_at_their_start_is_no_error(line: str) -> None:
    found = explain_bytes("\n".join([STARTS, line, *[SERVES] * 6, ""]).encode())
    assert "shows no failure" in found.summary, found.summary


def test_an_error_before_the_last_line_does_not_end_a_log() -> None:
    bad = (
        "(APIServer pid=7) ERROR 05-19 14:01:02 [serving.py:9] ValueError: This model's maximum context length is 4096"
    )
    found = explain_bytes("\n".join([STARTS, *[SERVES] * 6, bad, SERVES, ""]).encode())
    assert found.verdict is ExplainVerdict.UNFINISHED


GOES_ON = f"{STARTS}\nINFO:     Application startup complete.\n{SERVES}\n"
PENDING = "Pending Demands:\n {'GPU': 1.0} * 2 (PACK): 1+ pending placement groups\n"
DUMP = 'Thread 90 (idle): "MainThread"\n    all_reduce (torch/distributed/distributed_c10d.py:2806)\n    f (a.py:3)\n'
IDLE = 'Thread 91 (idle): "Thread-1"\n    recv (multiprocessing/connection.py:250)\n    run (threading.py:1010)\n'


def test_a_stack_or_a_demand_that_a_server_survived_is_no_cause() -> None:
    for text in (DUMP + GOES_ON, PENDING + GOES_ON * 5, IDLE):
        assert explain_bytes(text.encode()).causes == ()
    assert explain_bytes((IDLE + DUMP).encode()).causes[0].cause == "hang_no_error"


CHILD = "[2026-03-11 07:52:40] Received sigquit from a child process. It usually means the child failed."
OWN = (
    "[2026-03-11 07:52:40 TP3] Scheduler hit an exception: Traceback (most recent call last):",
    '  File "/opt/sglang/srt/pynccl.py", line 108, in __init__',
    "RuntimeError: NCCL error: unhandled system error (run with NCCL_DEBUG=INFO for details)",
)


def test_a_child_that_told_its_own_error_did_not_lose_another_process() -> None:
    told = explain_bytes("\n".join([*OWN, CHILD, ""]).encode())
    assert told.verdict is ExplainVerdict.NOT_ENOUGH_EVIDENCE and told.causes == ()
    assert any("NCCL_DEBUG=WARN" in note for note in told.notes)
    assert explain_bytes(f"{CHILD}\n".encode()).causes[0].cause == "remote_peer_died"


def test_a_dead_child_of_sglang_counts_as_a_dead_worker() -> None:
    aborted = explain_bytes(f"Fatal Python error: Aborted\n{CHILD}\n".encode())
    assert aborted.causes[0].cause == "segfault_worker"
    error = "NCCL WARN NET/IB: Got completion from peer 10.1.0.2<4791> with status=12 opcode=0 len=0 vendor err 129"
    lost = explain_bytes(f"{CHILD}\nnode-1:71:99 [0] {error}\n".encode())
    assert lost.causes[0].cause == "remote_peer_died"
    gloo = "[2026-03-11 07:52:40 TP3] Scheduler hit an exception: Traceback (most recent call last):"
    closed = "RuntimeError: [../gloo/transport/tcp/unbound_buffer.cc:81] Application timeout caused pair closure"
    assert explain_bytes(f"{gloo}\n{closed}\n{CHILD}\n".encode()).causes[0].cause == "remote_peer_died"


FRAME = '#2 _dl_map_object_from_fd (name=name@entry=0x7ffd8 "/opt/plugins/libnccl-profiler.so", fd=3) at dl-load.c:1258'


def test_a_crash_while_a_library_is_loaded_names_the_file_and_not_the_shared_memory() -> None:
    crash = "[node-1:71:0:71] Caught signal 7 (Bus error: nonexistent physical address)"
    assert "/opt/plugins/libnccl-profiler.so" in explain_bytes(f"{crash}\n{FRAME}\n".encode()).summary
    assert explain_bytes(crash.encode()).causes[0].cause == "shm_too_small"
    assert explain_bytes(f"Thread 1 (idle)\n{FRAME}\n".encode()).causes == ()  # a stack of a process that lives
