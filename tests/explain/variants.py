"""More of what libraries print: rarer wordings, older and newer versions, other launchers; one cause each."""
# ruff: noqa: E501  one message is one line, as it is printed

from __future__ import annotations

PREFIX = "node-1:4411:4420 [0] "

VARIANTS: dict[str, tuple[str, ...]] = {
    "collective_mismatch": (
        "RuntimeError: DDP expects same model across all ranks, but Rank 1 has 40 params, while rank 0 has inconsistent 41 params.",
        "[rank2]: RuntimeError: [2]: params[0] in this process with sizes [100, 8] appears not to match sizes of the same param in process 0.",
        "accelerate.utils.operations.DistributedOperationException: Cannot apply desired operation due to shape mismatches. All shapes across devices must be valid.",
        PREFIX
        + "transport/net_socket.cc:580 NCCL WARN NET/Socket : peer 10.1.2.3<4411> message truncated : receiving 1048576 bytes instead of 65536.",
        "RuntimeError: [enforce fail at ../third_party/gloo/gloo/transport/tcp/pair.cc:446] op.preamble.length <= op.nbytes. 8 vs 4",
        "RuntimeError: Disagreement error: rank 0: [1, 2], rank 1: [1, 3]",
        "FailedPreconditionError: Mismatched allreduce tensor shapes: One rank sent an allreduce of shape [3], but another rank sent an allreduce of shape [4].",
        "Detected mismatch between collectives on ranks. Rank 1 is running inconsistent collective: CollectiveFingerPrint(OpType=ALLREDUCE, TensorShape=[20, 10]",
    ),
    "cuda_oom_masked": (
        "RuntimeError: cuda runtime error (2) : out of memory at /pytorch/aten/src/THC/generic/THCStorage.cu:58",
        "RuntimeError: CUDA driver error: out of memory",
        "ValueError: Free memory on device (3.2/79.1 GiB) on startup is less than desired GPU memory utilization (0.9, 71.2 GiB).",
    ),
    "host_oom_killed": (
        "  6%|## | 37/625 [04:47<1:10:53, 13.82it/s]Killed",
        "[1]    4711 killed     python train.py",
        "OSError: [Errno 12] Cannot allocate memory",
        "The node was low on resource: memory. Threshold quantity: 100Mi, available: 50Mi.",
        "JobState=OUT_OF_MEMORY Reason=OutOfMemory Dependency=(null)",
        "(raylet, ip=10.1.2.3) node_manager.cc:3069: 1 Workers (tasks / actors) killed due to memory pressure (OOM)",
    ),
    "shm_too_small": (
        PREFIX
        + "misc/shmutils.cc:87 NCCL WARN Error while attaching to shared memory segment /dev/shm/nccl-Abc123 (size 33554432), error: No such file or directory (2)",
        "RuntimeError: unable to mmap 1024 bytes from file </torch_4711_12_7>: Cannot allocate memory (12)",
        "OSError: [Errno 28] No space left on device: '/dev/shm/sem.abc'",
    ),
    "dataset_worker_died": ("RuntimeError: Pin memory thread exited unexpectedly",),
    "wrong_socket_interface": (
        "node-1:4411:4420 [0] include/socket.h:344 WARN Socket creation failed : Address family not supported by protocol",
        PREFIX + "misc/socket.cc:321 NCCL WARN ncclSocketListen: Call to bind failed: Cannot assign requested address",
        PREFIX
        + "socket.cc:483 NCCL WARN socketStartConnect: Connect to fe80::1%ib1<17943> failed : Software caused connection abort",
    ),
    "ib_broken": (
        "mlx5: node-1: got completion with error:",
        "The InfiniBand retry count between two MPI processes has been exceeded.",
        PREFIX
        + "NCCL WARN NET/IBP:Got completion from peer 10.1.2.3<36315> with status=12 opcode=0 len=0 vendor err 129",
    ),
    "nvlink_or_fabric_manager": (
        'CUDA error at test.cu:256 code=802(cudaErrorSystemNotReady) "cudaSetDevice(device)"',
        "node-1: Test CUDA failure common.cu:941 'system not yet initialized'",
    ),
    "cuda_illegal_address": ("RuntimeError: CUDA error: the launch timed out and was terminated",),
    "xid_or_ecc": (
        "pcieport 0000:3a:00.0: AER: Uncorrected (Fatal) error received: 0000:3b:00.0",
        "RuntimeError: cuda runtime error (39) : uncorrectable ECC error encountered at THCCachingHostAllocator.cpp:265",
    ),
    "duplicate_gpu": (
        "RuntimeError: CUDA error: all CUDA-capable devices are busy or unavailable",
        "torch.AcceleratorError: CUDA error: CUDA-capable device(s) is/are busy or unavailable",
    ),
    "gpu_not_visible_in_container": (
        PREFIX + "graph/xml.cc:332 NCCL WARN Could not find real path of /sys/class/pci_bus/0000:0d/../../0000:0d:00.0",
        "RuntimeError: Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU",
        "RuntimeError: ProcessGroupNCCL is only supported with GPUs, no GPUs found!",
        "RuntimeError: CUDA unknown error - this may be due to an incorrectly set up environment",
    ),
    "rendezvous_failed": (
        "RuntimeError: connect() timed out. Original timeout was 1800000 ms.",
        "RuntimeError: Connection refused",
        "ssh: connect to host node-2 port 22: Connection refused",
        "Host key verification failed.",
        "torch.distributed.elastic.rendezvous.api.RendezvousStateError: The node has been dropped",
    ),
    "store_wait_timeout": (
        "torch.distributed.DistStoreError: Timed out after 601 seconds waiting for clients. 7/8 clients joined.",
    ),
    "version_mismatch": (
        "RuntimeError: CUDA error: invalid device function",
        "RuntimeError: Detected that PyTorch and torchvision were compiled with different CUDA major versions.",
        "The detected CUDA version (11.8) mismatches the version that was used to compile PyTorch (12.1).",
        "ImportError: libcudnn.so.8: cannot open shared object file: No such file or directory",
        "OSError: libnccl.so.2: cannot open shared object file: No such file or directory",
        "ImportError: /opt/env/ext_cuda.so: undefined symbol: _ZN3c104impl3cow11cow_deleterEPv",
    ),
    "remote_peer_died": (
        "(raylet) The node with node id: 0c8d and address: 10.1.2.3 has been marked dead because the detector has missed too many heartbeats from it.",
        "Socket recv failed while polling for opId=0x7f22ff731e10",
    ),
    "segfault_worker": (
        "!!!!!!! Segfault encountered !!!!!!!",
        "double free or corruption (!prev)",
        "srun: error: gpu-2: task 3: Segmentation fault (core dumped)",
    ),
    "illegal_instruction": (
        "[node-1:12345] Signal: Illegal instruction (4)",
        "Fatal Python error: Illegal instruction",
    ),
    "scheduler_time_limit": ("JobState=TIMEOUT Reason=TimeLimit Dependency=(null)",),
    "scheduler_cancelled": (
        "JobState=PREEMPTED Reason=None",
        "W0602 10:10:10.111000 77 torch/distributed/elastic/agent/server/api.py:719] Received Signals.SIGTERM death signal, shutting down workers",
        "WARNING:torch.distributed.elastic.agent.server.api:Received 1 death signal, shutting down workers",
        "torch.distributed.elastic.multiprocessing.api.SignalException: Process 2973500 got signal: 15",
    ),
    "watchdog_timeout_straggler": (
        "One or more tensors were submitted to be reduced, gathered or broadcasted by subset of ranks and are waiting for remainder of ranks for more than 60 seconds.",
    ),
}

# Printed by healthy runs, and nothing but information.
HARMLESS = (
    "INFO:torch.distributed.distributed_c10d:Added key: store_based_barrier_key:1 to store for rank: 0",
    "INFO:torch.distributed.distributed_c10d:Rank 0: Completed store-based barrier for key:store_based_barrier_key:1 with 4 nodes.",
    "Waiting in store based barrier to initialize process group for rank: 0, key: store_based_barrier_key:1 (world_size=4, worker_count=3)",
    "WARNING custom_all_reduce.py:143] Custom allreduce is disabled because your platform lacks GPU P2P capability or P2P test failed.",
    PREFIX + "NCCL INFO Could not enable P2P between dev 1(=1b000) and dev 0(=1a000)",
    PREFIX + "NCCL INFO Failed to initialize NET plugin IB",
    PREFIX + "NCCL WARN NET/IB : mlx5_0:1 Got async event : GID table change",
    "W dso_loader.cc:64] Could not load dynamic library 'libcudart.so.11.0'; dlerror: libcudart.so.11.0: cannot open shared object file: No such file or directory",
    "W bfc_allocator.cc:242] Allocator (GPU_0_bfc) ran out of memory trying to allocate 0B. The caller indicates that this is not a failure",
    "Read -1, expected 8192, errno = 1",
    "[W socket.cpp:601] [c10d] The client socket has failed to connect to [node-1]:29500 (errno: 113 - No route to host).",
)
