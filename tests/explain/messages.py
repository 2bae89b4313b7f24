"""What PyTorch (1.8 to 2.15), NCCL (2.4 to 2.30), CUDA, launchers and kernels print, by the cause that it alone proves."""
# ruff: noqa: E501  one message is one line, as it is printed

from __future__ import annotations

PREFIX = "node-1:4411:4420 [0] "

MESSAGES: dict[str, tuple[str, ...]] = {
    "watchdog_timeout_straggler": (
        "[Rank 0] Watchdog caught collective operation timeout: WorkNCCL(OpType=ALLREDUCE, Timeout(ms)=1800000) ran for 1806986 milliseconds before timing out.",
        "[E ProcessGroupNCCL.cpp:737] [Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=12, OpType=BROADCAST, Timeout(ms)=1800000) ran for 1800221 milliseconds before timing out.",
        "RuntimeError: NCCL communicator was aborted on rank 2.  Original reason for failure was: [Rank 2] Watchdog caught collective operation timeout",
        "[rank1]:[E ProcessGroupNCCL.cpp:1537] [PG 0 Rank 1] Timeout at NCCL work: 855, last enqueued NCCL work: 901, last completed NCCL work: 854.",
        "torch.distributed.DistBackendError: Work WorkNCCL(SeqNum=4, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=30000) timed out in blocking wait (TORCH_NCCL_BLOCKING_WAIT=1).",
        "[Rank 0]: Rank 2 failed to pass monitoredBarrier in 1800000 ms",
        "[rank6]:[E403 10:47:33.112142359 ProcessGroupNCCL.cpp:1987] [PG ID 0 PG GUID 0(default_pg) Rank 6] Received a dump signal due to a collective timeout from  rank 7 and we will try our best to dump the debug info. Last enqueued NCCL work: 54, last completed NCCL work: 54.",
        "frame #1: c10d::ProcessGroupNCCL::WorkNCCL::checkTimeout(std::optional<std::chrono::duration<long, std::ratio<1l, 1000l> > >) + 0x282 (0x7f2e5a5c6a92 in /opt/venv/lib/python3.10/site-packages/torch/lib/libtorch_cuda.so)",
    ),
    "collective_mismatch": (
        "RuntimeError: Detected mismatch between collectives on ranks. Rank 1 is running collective: CollectiveFingerPrint(SequenceNumber=3, OpType=ALLREDUCE, TensorShape=[4])",
        PREFIX
        + "init.cc:1247 NCCL WARN Mismatched collective detected, please check your collective calls at and around rank 39.",
        PREFIX
        + "transport/net_ib.cc:1021 NCCL WARN NET/IB : collective mismatch error local size 4096 remote 8192 addr 7f rkey 12",
    ),
    "cuda_oom_masked": (
        "RuntimeError: CUDA Error: out of memory at /workspace/csrc/cumem_allocator.cpp:139",
        "[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 4.24 GiB. GPU 3 has a total capacity of 79.14 GiB",
        "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 23.69 GiB total capacity; 22.9 GiB already allocated",
        "RuntimeError: CUDA out of memory. Tried to allocate 128.00 MiB (GPU 1; 15.78 GiB total capacty)",
        PREFIX + "include/alloc.h:48 NCCL WARN Cuda failure 2 'out of memory'",
        PREFIX + "include/alloc.h:181 NCCL WARN Failed to CUDA calloc async 1073741824 bytes",
        "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
    ),
    "host_oom_killed": (
        "slurmstepd: error: Detected 2 oom_kill events in StepId=8421.0. Some of the step tasks have been OOM Killed.",
        "srun: error: gpu-17: task 3: Out Of Memory",
        "slurmstepd: error: Detected 1 oom-kill event(s) in step 99.batch cgroup. Some of your processes may have been killed by the cgroup out-of-memory handler.",
        "[82911.102] Out of memory: Killed process 8874 (python) total-vm:91203942kB, anon-rss:71203942kB",
        "Memory cgroup out of memory: Killed process 102 (pt_main_thread)",
        "  exitcode  : -9 (pid: 8874)\n  traceback : Signal 9 (SIGKILL) received by PID 8874",
        "subprocess.CalledProcessError: Command '['python', 'train.py']' died with <Signals.SIGKILL: 9>.",
        "[2024-01-02 03:04:05,678] [ERROR] [launch.py:320:sigkill_handler] ['/usr/bin/python', 'train.py'] exits with return code = -9",
        "run.sh: line 12:  4711 Killed                  python train.py",
        "mpirun noticed that process rank 3 with PID 0 on node n1 exited on signal 9 (Killed).",
        "    Reason:       OOMKilled",
        "(EngineCore pid=237) ERROR 11-25 23:59:37 [multiproc_executor.py:315] Worker proc VllmWorker-1 died unexpectedly (exit code: None), shutting down executor.",
        "RuntimeError: [enforce fail at alloc_cpu.cpp:73] . DefaultCPUAllocator: can't allocate memory: you tried to allocate 42949672960 bytes.",
    ),
    "shm_too_small": (
        PREFIX + "include/shm.h:28 NCCL WARN Call to posix_fallocate failed : No space left on device",
        PREFIX + "misc/shmutils.cc:72 NCCL WARN Error: failed to extend /dev/shm/nccl-Abc123 to 9637892 bytes",
        PREFIX
        + "misc/shmutils.cc:115 NCCL WARN Error while creating shared memory segment /dev/shm/nccl-Abc123 (size 9637888), error: No space left on device (28)",
        PREFIX
        + "include/shm.h:48 NCCL WARN Error while creating shared memory segment nccl-shm-recv-1a2b-0-1-2 (size 9637888)",
        "ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared memory (shm).",
        "RuntimeError: DataLoader worker (pid 46800) is killed by signal: Bus error. It is possible that dataloader's workers are out of shared memory.",
        "RuntimeError: unable to write to file </torch_4711_1234_0>",
        "  exitcode  : -7 (pid: 8874)",
        "Bus error (core dumped)",
    ),
    "dataset_worker_died": (
        "RuntimeError: DataLoader worker (pid 4711) is killed by signal: Killed.",
        "RuntimeError: DataLoader worker (pid(s) 18894, 18897) exited unexpectedly",
        "RuntimeError: DataLoader worker (pid 12) is killed by signal: Segmentation fault.",
        "RuntimeError: One of the subprocesses has abruptly died during map operation.To debug the error, disable multiprocessing.",
        "concurrent.futures.process.BrokenProcessPool: A process in the process pool was terminated abruptly while the future was running or pending.",
    ),
    "p2p_broken": (
        PREFIX
        + "transport/p2p.cc:238 NCCL WARN Cuda failure 217 'peer access is not supported between these two devices'",
        PREFIX + "transport.cc:154 NCCL WARN Cuda failure 'invalid argument'",
        PREFIX + "NCCL INFO Could not enable P2P between dev 1(=1b000) and dev 0(=1a000)",
        'NotImplementedError: Using RTX 4000 series doesn\'t support faster communication broadband via P2P or IB. Please set `NCCL_P2P_DISABLE="1"`',
        "[ 4242.101] AMD-Vi: Event logged [IO_PAGE_FAULT domain=0x0021 address=0xf8000000 flags=0x0030]",
    ),
    "wrong_socket_interface": (
        PREFIX + "bootstrap.cc:45 NCCL WARN Bootstrap : no socket interface found",
        PREFIX + "transport/net_socket.cc:301 NCCL WARN NET/Socket : No usable listening interface found",
        "ncclSocketInit: connecting to address  with family 59936 is neither AF_INET(2) nor AF_INET6(10)",
        PREFIX + "include/socket.h:403 NCCL WARN Connect to 172.17.0.1<49270> failed : Connection refused",
        PREFIX + "include/socket.h:421 NCCL WARN Net : Connect to 10.1.2.3<49270> failed : No route to host",
        PREFIX
        + "misc/socket.cc:538 NCCL WARN socketStartConnect: Connect to 10.1.2.3<41270> failed : Software caused connection abort, Connection timed out",
        PREFIX
        + "misc/socket.cc:484 NCCL WARN socketPollConnect: Connect to 10.1.2.3<41270> returned 113(No route to host) errno 115(Operation now in progress)",
        PREFIX
        + "os/linux.cc:220 NCCL WARN ncclOsSocketPollConnect to 10.1.2.3<41270> failed with error Connection refused",
        "RuntimeError: [enforce fail at ../third_party/gloo/gloo/transport/tcp/device.cc:83] ifa != nullptr. Unable to find address for: eth0",
        "RuntimeError: Gloo connectFullMesh failed with [../third_party/gloo/gloo/transport/tcp/pair.cc:144] no error",
    ),
    "ib_broken": (
        PREFIX
        + "transport/net_ib.cc:748 NCCL WARN NET/IB : Got completion with error 12, opcode 0, len 0, vendor err 129",
        PREFIX
        + "transport/net_ib.cc:1022 NCCL WARN NET/IB : Got completion from peer 10.1.2.3<41270> with error 12, opcode 1, len 0, vendor err 129",
        PREFIX
        + "transport/net_ib.cc:1295 NCCL WARN NET/IB : Got completion from peer 10.1.2.3<41270> with status=12 opcode=129 len=0 vendor err 129 (Recv) localGid fe80::1 remoteGidsfe80::2 hca mlx5_0",
        PREFIX
        + "transport/net_ib/p2p.cc:812 NCCL WARN NET/IB: Got completion from peer 10.1.2.3<41270> with status=IBV_WC_RETRY_EXC_ERR(12) opcode=IBV_WC_SEND(0) vendor_err=129",
        PREFIX + "misc/ibvwrap.cc:278 NCCL WARN Call to ibv_reg_mr_iova2 failed with error Cannot allocate memory",
        PREFIX + "misc/ibvwrap.cc:187 NCCL WARN Call to ibv_modify_qp failed with error Network is unreachable",
        PREFIX
        + "misc/ibvwrap.cc:201 NCCL WARN Call to ibv_modify_qp failed with 110 Connection timed out, on dev mlx5_0:1, curr state INIT, next state RTR",
        PREFIX + "misc/ibvwrap.cc:260 NCCL WARN Call to ibv_create_cq failed",
        PREFIX + "transport/net_ib.cc:94 NCCL WARN NET/IB : Got async event : port error",
        PREFIX + "transport/net_ib.cc:112 NCCL WARN NET/IB : mlx5_0:1 Got async error event: port error",
        PREFIX + "transport/net_ib/p2p.cc:88 NCCL WARN NET/IB : mlx5_0:1 async fatal event: local catastrophic error",
        PREFIX
        + "NCCL WARN NET/IB : mlx5_0:1 async fatal event on QP (0x7f21aa0): local access violation work queue error",
        PREFIX + "transport/net_ib.cc:94 NCCL WARN NET/IB : mlx5_0:1 Got async event : local catastrophic error",
        "[1234.5] mlx5_core 0000:3b:00.0: mlx5_cmd_out_err:808: CREATE_MKEY(0x200) op_mod(0x0) failed",
    ),
    "nvlink_or_fabric_manager": (
        "RuntimeError: Unexpected error from cudaGetDeviceCount(). Error 802: system not yet initialized",
        PREFIX + "transport/nvls.cc:244 NCCL WARN Cuda failure 1 'invalid argument'",
        "Failed to bind NVLink SHARP (NVLS) Multicast memory of size 2097152 : CUDA error 401 'the operation cannot be performed in the present state'.",
        PREFIX
        + "graph/paths.cc:345 NCCL WARN P2P is disabled between NVLINK connected GPUs 1 and 0. This should not be the case given their connectivity, and is probably due to a hardware issue.",
        "CUDA error: uncorrectable NVLink error detected during the execution",
        "nvidia-fabricmanager.service: Failed with result 'exit-code'.",
    ),
    "xid_or_ecc": (
        "RuntimeError: CUDA error: uncorrectable ECC error encountered",
        "[75239.64] NVRM: Xid (PCI:0000:02:00): 79, GPU has fallen off the bus.",
        "kernel: NVRM: Xid (PCI:0000:c1:00): 48, pid=3, name=python, Double Bit ECC Error",
        PREFIX + "init.cc:88 NCCL WARN Cuda failure 999 'unknown error'",
        "THCudaCheck FAIL file=/pytorch/aten/src/THC/generic/THCStorage.cpp line=39 error=39 : uncorrectable ECC error encountered",
    ),
    "cuda_illegal_address": (
        "RuntimeError: CUDA error: an illegal memory access was encountered",
        PREFIX + "enqueue.cc:1556 NCCL WARN Cuda failure 700 'an illegal memory access was encountered'",
        "RuntimeError: CUDA error: device-side assert triggered",
        "RuntimeError: CUDA error: misaligned address",
        "RuntimeError: CUDA error: unspecified launch failure",
        "kernel: NVRM: Xid (PCI:0000:02:00): 31, pid=12, MMU Fault: ENGINE GRAPHICS",
    ),
    "duplicate_gpu": (
        PREFIX + "init.cc:795 NCCL WARN Duplicate GPU detected : rank 0 and rank 1 both on CUDA device 1a000",
        PREFIX
        + "init.cc:912 NCCL WARN Multiple Ranks are using the same GPU/Partition. Set NCCL_MULTI_RANK_GPU_ENABLE=1 to enable this feature",
    ),
    "gpu_not_visible_in_container": (
        PREFIX + "misc/nvmlwrap.cc:181 NCCL WARN nvmlDeviceGetHandleByPciBusId() failed: Not Found",
        "RuntimeError: No CUDA GPUs are available",
        "RuntimeError: CUDA error: invalid device ordinal",
        "RuntimeError: CUDA error: no CUDA-capable device is detected",
    ),
    "rendezvous_failed": (
        "[E socket.cpp:753] [c10d] The client socket has failed to connect to any network address of (node-0, 47389).",
        "[E socket.cpp:500] [c10d] The server socket has failed to listen on any local network address. server socket has failed to bind to [::]:29500 (errno: 98 - Address already in use).",
        "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. port: 29500, useIpv6: 0, code: -98, name: EADDRINUSE, message: address already in use",
        "[E socket.cpp:860] [c10d] The client socket has timed out after 60s while trying to connect to (10.1.2.3, 29500).",
        "[c10d] The client socket has timed out after 300000ms while trying to connect to (master-0, 23456).",
        "torch.distributed.elastic.rendezvous.api.RendezvousConnectionError: The connection to the C10d store has failed. See inner exception for details.",
        "torch.distributed.elastic.rendezvous.api.RendezvousTimeoutError",
        "socket.gaierror: [Errno -2] Name or service not known",
    ),
    "store_wait_timeout": (
        "torch.distributed.DistStoreError: Timed out after 901 seconds waiting for clients. 1/3 clients joined.",
        "RuntimeError: Timed out initializing process group in store based barrier on rank: 2, for key: store_based_barrier_key:1 (world_size=2, worker_count=1, timeout=0:30:00)",
        "[1] is setting up NCCL communicator and retreiving ncclUniqueId from [0] via c10d key-value store by key '0', but store->get('0') got error: Socket Timeout",
        "torch.distributed.DistStoreError: wait timeout after 600000ms, keys: /default_pg/0//cuda//0",
    ),
    "version_mismatch": (
        "The NVIDIA driver on your system is too old (found version 11040). Please update your GPU driver",
        PREFIX + "init.cc:1582 NCCL WARN Cuda failure 'CUDA driver version is insufficient for CUDA runtime version'",
        PREFIX + "enqueue.cc:47 NCCL WARN Cuda failure 'named symbol not found'",
        "RuntimeError: CUDA error: no kernel image is available for execution on the device",
        "ImportError: /opt/env/lib/libtorch_cuda.so: undefined symbol: ncclCommRegister",
        PREFIX + "init.cc:1321 NCCL WARN Mismatched NCCL version detected : rank 3 version 22304 rank 0 version 22703",
        "Failed to initialize NVML: Driver/library version mismatch",
        "OSError: libcudart.so.11.0: cannot open shared object file: No such file or directory",
    ),
    "nccl_plugin_problem": (
        PREFIX + "create_nccl_ofi_component:459 NCCL WARN NET/OFI Couldn't open AV. RC: -22, ERROR: Invalid argument",
        PREFIX + "nccl_net_ofi_init:1312 NCCL WARN NET/OFI aws-ofi-nccl initialization failed",
        PREFIX
        + "ofi_process_cq:1033 NCCL WARN NET/OFI Request 0x7f completed with error. RC: 21. Error: unknown error",
    ),
    "remote_peer_died": (
        PREFIX + "misc/socket.cc:49 NCCL WARN socketProgress: Connection closed by remote peer node-2<37128>",
        PREFIX + "include/socket.h:523 NCCL WARN Net : Connection closed by remote peer 10.1.2.3<51319>",
        "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.",
        "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:598] Connection closed by peer [10.1.2.3]:4711",
        PREFIX
        + "include/socket.h:416 NCCL WARN Net : Call to recv from 10.1.2.3<51319> failed : Connection reset by peer",
    ),
    "heartbeat_monitor": (
        "[rank0]:[E ProcessGroupNCCL.cpp:1316] [PG 0 Rank 0] Heartbeat monitor timed out! Process will be terminated after dumping debug info. workMetaList_.size()=103",
        "[rank0]:[F1015 01:02:03.123456789 ProcessGroupNCCL.cpp:1306] [PG 0 Rank 0] ProcessGroupNCCL's watchdog got stuck for 480 seconds without making progress in monitoring enqueued collectives.",
    ),
    "segfault_worker": (
        "subprocess.CalledProcessError: Command '['python', 'train.py']' died with <Signals.SIGSEGV: 11>.",
        "  exitcode  : -11 (pid: 8874)",
        "Fatal Python error: Segmentation fault",
        "[node-1:12345] Signal: Segmentation fault (11)",
        "run.sh: line 9: 4711 Segmentation fault      (core dumped) python train.py",
    ),
    "illegal_instruction": (
        "Illegal instruction (core dumped)",
        "  exitcode  : -4 (pid: 8874)",
        "torch.multiprocessing.spawn.ProcessExitedException: process 0 terminated with signal SIGILL",
    ),
    "scheduler_time_limit": (
        "slurmstepd: error: *** STEP 152.13 ON gpu-153 CANCELLED AT 2025-08-12T11:37:50 DUE TO TIME LIMIT ***",
        "slurmstepd: error: *** JOB 152 ON gpu-153 CANCELLED AT 2025-08-12T11:37:50 DUE TO TIME LIMIT ***",
        "=>> PBS: job killed: walltime 3632 exceeded limit 3600",
        "TERM_RUNLIMIT: job killed after reaching LSF run time limit.",
        "7200.013s: job.exception type=timeout severity=0 resource allocation expired",
    ),
    "scheduler_cancelled": (
        "[2026-02-20T02:21:45.184] error: *** JOB 6286330 ON clip06 CANCELLED AT 2026-02-20T02:21:45 DUE to SIGNAL Terminated ***",
        "slurmstepd: error: *** STEP 30485.1 ON node0400 CANCELLED AT 2024-01-07T05:36:24 ***",
        "slurmstepd: error: *** JOB 30485 ON node0400 CANCELLED AT 2024-01-07T05:36:24 DUE TO PREEMPTION ***",
        "TERM_OWNER: job killed by owner.",
        "41.207s: job.exception type=cancel severity=0 interrupted by ctrl-C",
    ),
    "not_nccl": (
        "Traceback (most recent call last):\n  File \"train.py\", line 3, in <module>\n    main()\nKeyError: 'input_ids'",
        "[rank3]: Traceback (most recent call last):\n[rank3]:   File \"train.py\", line 3, in <module>\n[rank3]: FileNotFoundError: [Errno 2] No such file or directory: 'data.bin'",
        'Traceback (most recent call last):\n  File "train.py", line 3, in <module>\nRuntimeError: mat1 and mat2 shapes cannot be multiplied (4x5 and 6x7)',
    ),
}

# Seen in runs that succeeded.
BENIGN = (
    "[2025-11-01 16:50:36 TP1] Setup Custom allreduce failed with CUDART error: peer access is not supported between these two devices. To silence this warning, specify --disable-custom-all-reduce explicitly.",
    PREFIX
    + 'init.cc:1021 NCCL WARN Missing "iommu=pt" from kernel command line which can lead to system instablity or hang!',
    PREFIX + "misc/socket.cc:77 NCCL WARN [Service thread] Accept failed Resource temporarily unavailable",
    PREFIX + "sharp_plugin.c:288 NCCL WARN NET/IB :SHARP coll init error: Cannot create SHArP job(-11)",
    PREFIX + "NCCL INFO Cannot initialize CollNet, using point-to-point network instead",
    PREFIX + "NCCL INFO Failed to open libibverbs.so[.1]",
    PREFIX
    + "NCCL INFO NET/Plugin: Plugin load returned 2 : libnccl-net.so: cannot open shared object file: No such file or directory : when loading libnccl-net.so",
    PREFIX + "NCCL INFO NET/Plugin: Failed to find ncclNetPlugin_v8 symbol.",
    PREFIX + "NCCL INFO TUNER/Plugin: Failed to find ncclTunerPlugin_v4 symbol.",
    PREFIX
    + "NCCL INFO dlvsym failed on mlx5dv_reg_dmabuf_mr - /lib/libmlx5.so: undefined symbol: mlx5dv_reg_dmabuf_mr, version MLX5_1.25",
    PREFIX + "graph/search.cc:1124 NCCL WARN Could not find a path for pattern 4, falling back to simple order",
    "[rank0]:[W812 11:28:44.006177094 ProcessGroupNCCL.cpp:1477] Warning: WARNING: destroy_process_group() was not called before program exit, which can leak resources.",
    "[rank0]:[W ProcessGroupNCCL.cpp:1113] WARNING: process group has NOT been destroyed before we destruct ProcessGroupNCCL.",
    "Warning: NCCL_ASYNC_ERROR_HANDLING is deprecated; use TORCH_NCCL_ASYNC_ERROR_HANDLING instead",
    "[Gloo] Rank 0 is connected to 7 peer ranks. Expected number of connected peer ranks is : 7",
    "[W socket.cpp:663] [c10d] The client socket has failed to connect to [localhost]:29500 (errno: 97 - Address family not supported by protocol).",
    "[W socket.cpp:663] [c10d] The client socket has failed to connect to [node-1]:29500 (errno: 22 - Invalid argument).",
    "slurmstepd: error: NVML: Failed to get Compute running procs(2): Insufficient Size",
    "overflow detected, setting loss scale to 32768.0",
    PREFIX
    + "NCCL INFO P2P is disabled between connected GPUs 1 and 0. You can repress this message with NCCL_IGNORE_DISABLED_P2P=1.",
    "W0602 main process destroyed cuda before watchdog loop exited, terminating watchdog.",
)
