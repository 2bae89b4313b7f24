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
        'RuntimeError: NVML_SUCCESS == r INTERNAL ASSERT FAILED at "../c10/cuda/CUDACachingAllocator.cpp":830',
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
        "NVRM: Xid (PCI:0000:5d:00): 145, pid=1, NVLink: RLW error",
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
        "RuntimeError: handle INTERNAL ASSERT FAILED. Can't find nvmlDeviceGetNvLinkRemoteDeviceType: undefined symbol",
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
        "Process finished with exit code -1073741819 (0xC0000005)",
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
        "WARNING:torch.distributed.elastic.agent.server.api:Received 1 death signal, shutting down workers",
        "torch.distributed.elastic.multiprocessing.api.SignalException: Process 2973500 got signal: 1",
    ),
    "watchdog_timeout_straggler": (
        "One or more tensors were submitted to be reduced, gathered or broadcasted by subset of ranks and are waiting for remainder of ranks for more than 60 seconds.",
    ),
}

# Other systems' and other releases' words for the same.
ELSEWHERE: dict[str, tuple[str, ...]] = {
    "collective_mismatch": (
        "RuntimeError: Error when verifying shape tensors for collective ALLREDUCE on rank 1. This likely indicates that input shapes into the collective are mismatched across ranks. Got shapes:  10 20",
        "RuntimeError: Mismatch between collective operation types across ranks. This likely indicates an application bug where different ranks are running different collectives.",
    ),
    "cuda_oom_masked": (
        "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 38110371112 bytes.",
        "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.",
        "[FT][ERROR] CUDA runtime error: out of memory /workspace/allocator.h:181",
    ),
    "host_oom_killed": (
        "TERM_MEMLIMIT: job killed after reaching LSF memory usage limit.",
        "slurmstepd: error: Exceeded job memory limit at some point.",
        "=>> PBS: job killed: mem 134221824kb exceeded limit 134217728kb",
        "systemd-oomd killed 213 process(es) in this unit.",
    ),
    "shm_too_small": (
        "OSError: [Errno 28] No space left on device: '/psm_5f12ab3c'",
        "mpirun noticed that process rank 3 with PID 12 on node n1 exited on signal 7 (Bus error).",
        "unable to allocate shared memory(shm) for file </torch_2210_3182_1>: No space left on device (28)",
        "RuntimeError: unable to resize file <filename not specified> to the right size: No space left on device (28)",
    ),
    "ib_broken": (
        "Failed to modify QP to RTR: Connection timed out",
        " Completion with error at client: transport retry counter exceeded",
        "E0311 07:52:40.118201 4711 rdma_context.cpp:203] Failed to register memory 0x7f3a40000000: Bad address [14]",
    ),
    "nccl_plugin_problem": (
        "NET/OFI Unexpected number of remote rails for dev 2. Expected 1 but got 4",
        "node-1:1:9 [0] ucx_plugin.c:290 NCCL WARN Failed: UCX error ucx_plugin.c:290 `-22` No such device",
    ),
    "nvlink_or_fabric_manager": (
        "node-1:1:9 [0] init.cc:712 NCCL WARN MNNVL (cliqueSize 4) is available but not working on this system. Check the IMEX channel configuration (/dev/nvidia-caps-imex-channels).",
        "fabric manager NVIDIA GPU driver interface version 535.54.03 don't match with driver version 535.104.05. Please update with matching NVIDIA driver package.",
    ),
    "version_mismatch": (
        "node-1:1:9 [0] misc/strongstream.cc:53 NCCL WARN NCCL cannot be captured in a graph if either it wasn't built with CUDA runtime >= 11.3 or if the installed CUDA driver < R465.",
        "node-1:1:9 [0] bootstrap.cc:114 NCCL WARN Message truncated : received 1024 bytes instead of 256",
    ),
    "wrong_socket_interface": (
        "  what():  [enforce fail at /opt/pytorch/third_party/gloo/gloo/transport/tcp/device.cc:209] rp != nullptr. Unable to find interface for: eth1",
        "node-1:1:9 [0] misc/socket.cc:426 NCCL WARN socketStartConnect: Connect to fe80::1%eth3<4412> failed : Invalid argument",
    ),
    "rendezvous_failed": (
        "ValueError: Error initializing torch.distributed using env:// rendezvous: environment variable MASTER_ADDR expected, but not set",
        "ConnectionError: Tried to launch distributed communication on port `29500`, but another process is utilizing it. Please specify a different port",
        "[W TCPStore.cpp:340] [c10d] TCP client failed to connect/validate to host 10.0.0.1:29500 - timed out (try=0, timeout=300000ms): Connection refused",
        "torch.distributed.DistStoreError: use_libuv was requested but PyTorch was build without libuv support",
        "node-1:1:9 [0] bootstrap.cc:186 NCCL WARN Bootstrap Root : mismatch in rank count from procs 8 : 4",
    ),
    "remote_peer_died": (
        "torch.distributed.DistNetworkError: Failed to recv, got 0 bytes. Connection was likely closed. Did the remote server shutdown or crash?",
    ),
    "heartbeat_monitor": (
        "[rank1]:[F122 ProcessGroupNCCL.cpp:1557] Could not acquire GIL within 300 ms on exit, possible GIL induced hang",
    ),
    "segfault_worker": (
        "*** SIGSEGV (@0x0) received by PID 3312 (TID 0x7f1) from PID 0; stack trace: ***",
        "traps: python[11] general protection fault ip:7f1 sp:7ff error:0 in libtorch_cpu.so",
    ),
    "illegal_instruction": (
        "mpirun noticed that process rank 0 with PID 1721 on node n1 exited on signal 4 (Illegal instruction).",
        "terminated by signal SIGILL (Illegal instruction)",
    ),
    "scheduler_time_limit": (
        "Warning  DeadlineExceeded  2m  job-controller  Job was active longer than specified deadline",
        "Pod was active on the node longer than the specified deadline",
        'job 4121 exceeds job hard limit "h_rt" of queue "gpu.q" (86401.00000 > limit:86400.00000) - sending SIGKILL',
    ),
    "scheduler_cancelled": (
        "slurmstepd: error: *** JOB 608 ON gpu-12 CANCELLED AT 2022-08-12T02:06:12 DUE TO JOB REQUEUE ***",
        "srun: error: Node failure on n1",
        "submitit WARNING (2022-08-12 02:06:11,453) - Caught signal SIGUSR2 on gpu-12: this job is preempted.",
    ),
    "p2p_broken": (
        "RuntimeError: Error happened when batch testing peer-to-peer access from (0, 1) to (1, 0):",
        "DMAR: [DMA Write NO_PASID] Request device [3b:00.0] fault addr 0x388000000000 [fault reason 0x05] PTE Write access is not set",
    ),
    "not_nccl": ("/var/spool/slurmd/job7/slurm_script: line 4: torchrun: command not found",),
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
    PREFIX + "NCCL WARN NET/IB : mlx5_0:1 Got async error event: port active",
    "W dso_loader.cc:64] Could not load dynamic library 'libcudart.so.11.0'; dlerror: libcudart.so.11.0: cannot open shared object file: No such file or directory",
    "W bfc_allocator.cc:242] Allocator (GPU_0_bfc) ran out of memory trying to allocate 0B. The caller indicates that this is not a failure",
    "Read -1, expected 8192, errno = 1",
    '{"namespace": "", "time_ms": 1760118507015, "event_type": "POINT_IN_TIME", "key": "tracked_stats"}',
    "libfabric:214:1755000321::core:core:cuda_hmem_dl_init():341<warn> Failed to dlopen libnvidia-ml.so. Trying libnvidia-ml.so.1",
    "libfabric:214:1755000321::core:core:gdrcopy_hmem_init():240<warn> gdr_open failed, gdrcopy is unavailable",
    "[W socket.cpp:601] [c10d] The client socket has failed to connect to [node-1]:29500 (errno: 113 - No route to host).",
    "[I ProcessGroupWrapper.cpp:562] [Rank 0] Running collective: CollectiveFingerPrint(SequenceNumber=1277, OpType=ALLREDUCE, TensorShape=[])",
    "[E socket.cpp:957] [c10d] The hostname of the client socket cannot be retrieved. err=-3",
)
