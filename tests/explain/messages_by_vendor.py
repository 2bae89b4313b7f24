"""What AMD's, Huawei's, Amazon's and Google's software prints, JAX, NVSHMEM, engines, clouds and full disks.

By the cause that each message alone proves; values, hosts and paths are ours.
"""
# ruff: noqa: E501  one message is one line, as it is printed

from __future__ import annotations

PREFIX = "node-1:4411:4420 [0] "

BY_VENDOR: dict[str, tuple[str, ...]] = {
    "known_bug": (
        PREFIX
        + "nccl/src/allocator.cc:229 NCCL WARN Allocation failed. No suitable space found to accommodate size=0x60000000 within limit=0x90000000",
        PREFIX + "graph/xml.h:77 NCCL WARN Attribute vendor of node cpu not found",
        " 5 0x0000000000122927 rasMsgHandlePeersUpdate()  /opt/nccl/src/ras/ras.cc:842",
    ),
    "gpu_hang_or_fault_amd": (
        "HW Exception by GPU node-7 (Agent handle: 0x2e11690) reason :GPU Hang",
        "Memory access fault by GPU node-2 (Agent handle: 0x9c8f2d0) on address 0x7ec0b1a00000. Reason: Page not present or supervisor privilege.",
        "[500201.161005] amdgpu 0000:dd:00.0: amdgpu: GPU reset begin!",
        "[ 8120.441201] [drm:amdgpu_job_timedout [amdgpu]] *ERROR* amdgpu: ring gfx_0.0.0 timeout, signaled seq=11, emitted seq=13",
        "RuntimeError: HIP error: an illegal memory access was encountered",
        ":0:rocdevice.cpp            :2984: 11223344 us: Callback: Queue 0x7f1c00000000 aborting with error : HSA_STATUS_ERROR_MEMORY_APERTURE_VIOLATION",
    ),
    "jax_coordination_timeout": (
        "jaxlib.xla_extension.XlaRuntimeError: DEADLINE_EXCEEDED: GetKeyValue() timed out with key: cuda:local_topology/cuda/5 and duration: 2m",
        "F0302 11:00:20.114201 4711 rendezvous.cc:115] Termination timeout for `acquire clique for rank 3; run_id=18` of 40 seconds exceeded. Exiting to ensure a consistent program state.",
        "jaxlib.xla_extension.XlaRuntimeError: DEADLINE_EXCEEDED: Barrier timed out. Id: PjRT_Client_Connect. This usually happens because a task triggered the barrier unexpectedly early, or some tasks are slow.",
        "2026-03-11 02:12:51.875280: E external/xla/xla/tsl/distributed_runtime/coordination/coordination_service.cc:1170] /job:jax_worker/replica:0/task:5 has been set to ERROR in coordination service: UNAVAILABLE: Task /job:jax_worker/replica:0/task:5 heartbeat timeout.",
        "2026-03-11 02:12:51.875280: F external/xla/xla/pjrt/distributed/client.h:75] Terminating process because the coordinator detected missing heartbeats.",
    ),
    "efa_or_libfabric": (
        "Libfabric error: (-12) Cannot allocate memory",
        "EFA internal error: (4112) Failure to post internal receive buffers",
        PREFIX
        + "register_rail_mr_buffer:617 NCCL WARN NET/OFI Unable to register memory (type = 2) for device 7. RC: -22, Error: Invalid argument",
    ),
    "nvshmem_or_deepep": (
        "RuntimeError: Failed: Assertion error csrc/kernels/runtime.cu:41 'nvshmem_team_split_strided(TEAM_WORLD, rank)'",
        "DeepEP timeout check failed: rank = 3, thread = 2, value = 512)",
        "all_to_all: NVSHMEM timeout waiting for peer 3",
        "RuntimeError: DeepEP error: timeout (dispatch CPU)",
        "DeepEP dispatch NVL receiver timeout, channel: 2, RDMA: 1, nvl: 3, src RDMA: 0, src nvl: 6, start: 0, end: 0",
        "/opt/nvshmem/src/host/transport/transport.cpp:nvshmemi_transport_init:275: init failed for transport: IBGDA",
        "/opt/nvshmem/src/modules/transport/ibrc/ibrc.cpp:nvshmemt_init:1851: neither nv_peer_mem, or nvidia_peermem detected. Skipping transport.",
        "WARN: nvshmem detect topo failed",
    ),
    "disk_full": (
        "OSError: [Errno 28] No space left on device: '/scratch/out/checkpoint-500/model.safetensors'",
        "OSError: [Errno 122] Disk quota exceeded",
        "RuntimeError: [enforce fail at inline_container.cc:603] . unexpected pos 4608 vs 4502",
        "The node was low on resource: ephemeral-storage. Threshold quantity: 10Gi, available: 2Gi.",
    ),
    "spot_preemption": (
        "Normal  Preempted  2m  kueue-admission  Preempted to accommodate a workload in the ClusterQueue due to prioritization",
        'gke-spot-7c: {"event": "TERMINATE_ON_HOST_MAINTENANCE", "preempted": "TRUE"}',
        "2026-07-28 23:41:02 job-controller WARN job 01K1F was preempted: a job of higher priority needs 4 nodes",
        "Spot instance interruption notice received: the instance is terminated in 120 s",
        "Normal  TaintManagerEviction  2m  taint-eviction-controller  Marking for deletion Pod train/fit-worker-2",
    ),
    "driver_gpu_lost": (
        "amdgpu 0000:0a:00.0: Unable to change power state from D3hot to D0, device inaccessible",
        "RuntimeError: level_zero backend failed with error: 20 (UR_RESULT_ERROR_DEVICE_LOST)",
        "Unable to determine the device handle for GPU0000:81:00.0: Unknown Error",
        "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.",
        "pynvml.NVMLError_GpuIsLost: GPU is lost",
    ),
    "segfault_worker": ("free(): double free detected in tcache 2", "realloc(): invalid next size"),
    "watchdog_timeout_straggler": (
        "  Rank 5 has launched up to operation 118 -- GPU 1 managed by process 4711 on node 192.0.2.4",
        "RuntimeError: [../third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 1800000ms for recv operation to complete",
    ),
    "framework_argument_error": (
        "[TensorRT-LLM][ERROR] Assertion failed: Failed: MPI error /src/tensorrt_llm/cpp/mpiUtils.cpp:205 '6' (/src/mpiUtils.cpp:205)",
        "ValueError: Ray does not allocate any GPUs on the driver node. Consider adjusting the Ray placement group.",
        "ValueError: Total number of attention heads (12) must be divisible by tensor parallel size (8).",
        "AssertionError: Check batch related parameters. train_batch_size is not equal to micro_batch_per_gpu * gradient_acc_step * world_size 32 != 4 * 1 * 4",
    ),
    "cuda_oom_masked": (
        "RuntimeError: Triton Error [CUDA]: out of memory",
        "RuntimeError: UR backend failed. UR backend returns:40 (UR_RESULT_ERROR_OUT_OF_RESOURCES)",
        "RuntimeError: CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`",
        "RuntimeError: NPU out of memory. Tried to allocate 1.22 GiB (NPU 5; 60.97 GiB total capacity)",
        "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 1.22 GiB.",
    ),
    "gpu_not_visible_in_container": (
        "Unable to open /dev/kfd read-write: Permission denied",
        "RuntimeError: No HIP GPUs are available",
        "RuntimeError: Unable to initialize backend 'cuda': FAILED_PRECONDITION: No visible GPU devices.",
    ),
    "p2p_broken": (
        "Failed: Cuda error /workspace/csrc/custom_all_reduce.cuh:455 'invalid argument'",
        ":1:hip_memory.cpp      :3354: 78668880046 us:  IPC memory creation failed for memory: 0x5efe00000",
    ),
    "accelerator_runtime_ascend": (
        "EJ0001: 2026-07-24-11:19:57.178.004 Failed to initialize the HCCP process. Reason: Maybe the last training process is running.",
        "EI0006: [PID: 31879] 2026-07-24-11:19:57.178.004 Getting socket times out. Reason: Remote Rank did not send the data in time.",
    ),
    "rendezvous_failed": (
        "[ERROR] HCCL(31877,python3):2026-07-24-11:17:57 [hccl_socket.cc:100] [Listen] socket type[1], listen on ip[192.0.2.160] and specific port[16666] fail.",
    ),
    "nvlink_or_fabric_manager": (
        "RuntimeError: CUDA error: Invalid access of peer GPU memory over nvlink or a hardware error",
        "mscclpp.CuError: (800, 'Call to cuMemCreate(&memHandle, nbytes, &prop, 0 /*flags*/) failed. (Cu failure: operation not permitted)')",
    ),
    "collective_mismatch": ("Found mismatch: MatchState.SIZE_OR_SYNTAX_MISMATCH on ranks {2, 3}",),
    "version_mismatch": (
        '"hipErrorNoBinaryForGpu: Unable to find code object for all current devices!"',
        "rocBLAS error: Cannot read /opt/rocm/lib/rocblas/library/TensileLibrary.dat: Illegal seek for GPU arch : gfx1103",
        "RuntimeError: HIP error: invalid device function",
        "deepspeed.ops.op_builder.builder.CUDAMismatchException: >- DeepSpeed Op Builder: Installed CUDA version 12.4 does not match the version torch was compiled with 12.1",
    ),
    "ib_broken": (
        "EI0013: [PID: 4711] The ROCE CQE has error, local: 192.0.2.1 remote: 192.0.2.2, error cqe status: 12",
        "ib_md.c:311  UCX  ERROR ibv_reg_mr(address=0x7f00, length=4096, access=0xf) failed: Cannot allocate memory",
    ),
    "wrong_socket_interface": (
        "WARNING: Open MPI failed to TCP connect to a peer MPI process. This should not happen.",
    ),
    "not_nccl": (
        "triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: 110592, Hardware limit: 101376.",
    ),
}
