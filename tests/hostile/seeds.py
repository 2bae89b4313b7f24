"""Good input of every kind, for the fuzzer to spoil."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import pickle
import tarfile
import zipfile
from pathlib import Path

import zstandard

from preflight.model.codec import encode
from preflight.show.json_document import render_json
from tests.show.judged import BLAMED, accepted
from tests.stuck.evidence import SAVE, four, process, rank

TESTS = Path(__file__).resolve().parents[1]
LARGEST_LOG = 8 << 10


def _json(document: object) -> bytes:
    return json.dumps(document).encode()


REPORTS = tuple(render_json(report).encode() for report in (accepted(), *(make() for make in BLAMED.values())))
CAPTURES = tuple((TESTS / "machines" / f"{name}.json").read_bytes() for name in ("rtx4090x2", "l20x4_docker"))
BASELINE = _json({
    "baseline_schema": 1, "hardware": {"backend": "gloo", "gpus": "2 x H100"}, "hosts": ["a"], "references": [
        {"backend": "gloo", "world_size": 2, "collective": "all_reduce", "group": "large", "size_bytes": 8,
         "busbw_gb_s": 1.0, "nodes": 3, "repetitions": 2, "between_nodes": 0.1, "between_repetitions": 0.1}],
})  # fmt: skip
POLICY = b"""[checks]
memlock = "fatal"
[[waivers]]
check = "memlock"
subject = "x"
reason = "y"
until = "2030-01-01"
[expect]
gpu_count = 8
gpu_model = "H100"
driver = ">=580.65"
port_rate = 400.0
ecc = true
[lookback]
xids = "24h"
link_flaps = "1h30m"
[floors]
"all_reduce 1 GiB" = 300
"""
KERNEL_HISTORY = _json({"now_s": 9.5, "begins_s": 0.0, "lines": [[1.25, "NVRM: Xid (PCI:0000:1b:00): 79, GPU"]]})
NODE = _json(encode(four(rank(2, process(102, SAVE)))))
RAS = tuple(path.read_bytes() for path in sorted((TESTS / "stuck" / "ras").glob("*.txt")))
STACKS = _json([
    {"os_thread_id": 7, "thread_name": "MainThread", "owns_gil": True,
     "frames": [{"name": "f", "filename": "/x/train.py", "line": 3, "locals": None}]}
])  # fmt: skip
TOPOLOGY = b"""\tGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID
GPU0\t X \tNV18\tPIX\t0-47,96-143\t0\t\tN/A
GPU1\tNV18\t X \tSYS\t48-95,144-191\t1\t\tN/A
NIC0\tPIX\tSYS\t X

NIC Legend:

  NIC0: mlx5_0
"""
MODEL_CONFIG = _json({"hidden_size": 8, "num_hidden_layers": 2, "vocab_size": 9, "text_config": {"n_layer": 3}})
RUN_RECORD = _json({"ended_well": True, "host": "n0", "took_s": 900.5, "phases": {
    "start": {"silent_s": 40.0, "lasted_s": 61.5}, "training": {"silent_s": 2.5, "lasted_s": 700.0},
}})  # fmt: skip
PERFTEST = (
    b"""$ ib_write_bw -d mlx5_0 -i 2 -a --report_gbits 10.0.0.2
                    RDMA_Write BW Test
 Dual-port       : OFF\t\tDevice         : mlx5_0
 #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]
 65536      5000             196.91             196.90             0.375556
 8388608    5000             196.30             196.23             0.002924
""",
    b"""                    Send Bidirectional BW Test
 Device         : irdma0
 #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]
 1048576    1000             2812.77            2811.93            0.002812
""",
)
LOG = b"""[rank3]:[E812 10:00:00.0 ProcessGroupNCCL.cpp:616] [Rank 3] Watchdog caught
 collective operation timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE, Timeout(ms)=600000)
 ran for 600029 milliseconds before timing out.
n1:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM\n[rank1]: torch.OutOfMemoryError: CUDA out of memory.
"""
LOGS = (
    LOG, b"".join(_json({"message": line.decode(), "rank": 3}) + b"\n" for line in LOG.splitlines()),
    *(path.read_bytes() for path in sorted((TESTS / "explain" / "reported").glob("*.log"))
      if path.stat().st_size < LARGEST_LOG),
)  # fmt: skip
DUMP = pickle.dumps(
    {"version": "2.4", "entries": [{"collective_seq_id": n, "process_group": ("0", "default_pg"), "is_p2p": False,
     "profiling_name": "nccl:all_reduce", "input_sizes": [[4]]} for n in range(3)]}, protocol=2)  # fmt: skip
DUMPS = (DUMP, *(pickle.dumps(pickle.loads(DUMP), protocol=number) for number in (3, 4, 5)))


def _tar(form: int) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=form) as archive:
        for name, data in (("logs/" + "deep/" * 30 + "rank_3.log", LOG), ("nccl_trace_rank_0", DUMP)):
            about = tarfile.TarInfo(name)
            about.size = len(data)
            archive.addfile(about, io.BytesIO(data))
    return packed.getvalue()


class _Pipe(io.BytesIO):
    """What can't be gone back in: a zip that is written to it has its sizes behind the files."""

    def seekable(self) -> bool:
        return False


def _zip(packed: io.BytesIO, method: int) -> bytes:
    with zipfile.ZipFile(packed, "w", method) as archive:
        archive.writestr("rank_3.log", LOG)
        archive.writestr("nccl_trace_rank_0", DUMP)
    return packed.getvalue()


ARCHIVES = (
    _tar(tarfile.GNU_FORMAT), _tar(tarfile.PAX_FORMAT), _tar(tarfile.USTAR_FORMAT),
    _zip(io.BytesIO(), zipfile.ZIP_STORED), _zip(io.BytesIO(), zipfile.ZIP_DEFLATED),
    _zip(_Pipe(), zipfile.ZIP_DEFLATED),
    gzip.compress(LOG, mtime=0), bz2.compress(LOG), lzma.compress(LOG), zstandard.compress(LOG),
    gzip.compress(_tar(tarfile.GNU_FORMAT), mtime=0), ("\ufeff" + LOG.decode()).encode("utf-16-le"),
)  # fmt: skip


def _variables(**values: str) -> bytes:
    return "\n".join(f"{name}={value}" for name, value in values.items()).encode()


SLURM = _variables(
    SLURM_NNODES="2", SLURM_NODEID="0", SLURM_STEP_ID="0", SLURM_JOB_ID="7", SLURM_NTASKS="2",
    SLURM_STEP_NUM_NODES="2", SLURM_STEP_NUM_TASKS="2", SLURM_JOB_NODELIST="n[1-2]", MASTER_ADDR="n1", MASTER_PORT="1",
)  # fmt: skip
PLACES = (
    SLURM,
    _variables(PET_NNODES="2", PET_NODE_RANK="1", PET_RDZV_ENDPOINT="[fe80::1]:29400", PET_MASTER_ADDR="n1",
               PET_MASTER_PORT="29500", PET_RDZV_ID="x", PET_NPROC_PER_NODE="4"),
    _variables(WORLD_SIZE="2", RANK="1", JOB_COMPLETION_INDEX="1", MASTER_ADDR="job-0.job.svc", MASTER_PORT="29500"),
)  # fmt: skip
NCCL_CONF = b"NCCL_DEBUG=INFO\n#x\nNCCL_IB_HCA = ^mlx5_0:1\n"
ENVIRONMENT = _variables(
    NCCL_SOCKET_IFNAME="^lo,docker", NCCL_IB_HCA="=mlx5_0:1", NCCL_IB_TIMEOUT="22", NCCL_IB_RETRY_CNT="7",
    NCCL_IB_GID_INDEX="3", NCCL_P2P_LEVEL="PHB", NCCL_ALGO="Ring,Tree", NCCL_PROTO="^LL128", NCCL_DEBUG="INFO",
    CUDA_VISIBLE_DEVICES="0,GPU-00000001", GLOO_SOCKET_IFNAME="eth0", TORCH_DISTRIBUTED_DEBUG="OFF",
    OMP_NUM_THREADS="4", PREFLIGHT_PG_TIMEOUT_S="600", NCCL_CUMEM_ENABLE="0", NCCL_NTHREADS="512",
)  # fmt: skip
