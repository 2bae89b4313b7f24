"""Hold the timeouts of 17 published or common jobs and 46 public logs against the pause that each of them has.

The pause is bytes by bandwidth as the operators give them, without any of preflight's formulas. A timeout must not be
below it, and at most five times above it or at the minimum. `measured` is what a directory gives to one rank and to a
node's ranks together, in GB/s; None: nothing was measured.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from preflight.model.job import Job, ParamCount, Save, Strategy
from preflight.model.storage import StorageSpeed
from preflight.model.timeout import Timings
from preflight.timeout.checkpoint_size import WEIGHT_BYTES
from preflight.timeout.safe_timeout import CAP_S, FLOOR_S, safe_timeout
from preflight.timeout.timings import timings

BILLION = 10**9
MOST_ABOVE, MINUTE_S = 5, 60


@dataclass(frozen=True, slots=True)
class Known:
    """One job: how many parameters and ranks, how it is saved, what its directory gives, and its longest pause."""

    name: str
    billions: float
    ranks: int
    strategy: Strategy
    save: Save
    measured: tuple[float, float] | None
    pause_s: float
    lora_share: float | None = None
    preprocess_s: float = 0.0


F, S, A = Save.FULL, Save.SHARDED, Save.ASYNC
FSDP, DDP, ZERO1, ZERO2, ZERO3 = Strategy.FSDP, Strategy.DDP, Strategy.ZERO1, Strategy.ZERO2, Strategy.ZERO3
JOBS = (
    Known("Llama 3 405B, Tectonic 2 TB/s", 405, 16384, FSDP, S, (2, 2000), 30.0),
    Known("Llama 3 405B, not measured", 405, 16384, FSDP, S, None, 30.0),
    Known("Llama 3.1 405B, asynchronous, Lustre 20 GB/s", 405, 512, FSDP, A, (2, 20), 41.0),
    Known("DeepSeek-V3 671B, 3FS 100 GB/s", 671, 2048, ZERO1, S, (4, 100), 94.0),
    Known("DeepSeek-V3 671B, not measured", 671, 2048, ZERO1, S, None, 94.0),
    Known("Qwen2.5 72B, full, NFS 1 GB/s", 72.7, 64, FSDP, F, (1, 1), 1018.0),
    Known("Qwen2.5 72B, sharded, Lustre 20 GB/s", 72.7, 64, FSDP, S, (2, 20), 51.0),
    Known("Qwen2.5 72B, ZeRO-3, gathered, NFS 1 GB/s", 72.7, 64, ZERO3, F, (1, 1), 1018.0),
    Known("Llama 2 70B, object store 5 GB/s", 70, 128, FSDP, S, (1, 5), 196.0),
    Known("7B, full, NVMe 2 GB/s", 7, 8, FSDP, F, (2, 4), 98.0),
    Known("7B, DDP, NFS 1 GB/s", 7, 8, DDP, F, (1, 1), 98.0),
    Known("7B, ZeRO-2, busy share 0.2 GB/s", 7, 8, ZERO2, F, (0.2, 0.2), 490.0),
    Known("7B, LoRA 0.5%, NFS 1 GB/s", 7, 8, DDP, F, (1, 1), 14.0, lora_share=0.005),
    Known("70B, LoRA 0.5%, not measured", 70, 8, FSDP, F, None, 140.0, lora_share=0.005),
    Known("BERT 340M, not measured", 0.34, 4, DDP, F, None, 5.0),
    Known("BLOOM 176B, 2.3 TB in 40 s by its own log", 176, 384, ZERO1, S, (2, 57), 40.0),
    Known("MPT 30B, 40 minutes of preprocessing", 30, 256, FSDP, S, (1, 5), 2400.0, preprocess_s=2400.0),
)  # fmt: skip

# The longest times in s without a line, before training and in it, of public logs of jobs that ended well: MLPerf
# training results (github.com/mlcommons/training_results_v4.0 and _v5.0, result_0.txt), whose lines have times in ms.
# Left out: jobs without torch, and logs without a line for a whole block of training. None saves a checkpoint.
PUBLIC: dict[str, tuple[tuple[str, int, int, int], ...]] = {
    "llama31_405b": (
        ("v5.0 NVIDIA tyche_ngpu256_ngc25.04_nemo", 256, 517, 20),
        ("v5.0 IBM carina_ngpu512_ngc25.04_nemo", 512, 723, 20),
        ("v5.0 NVIDIA eos-dfw_n64_ngc25.01_nemo", 512, 586, 68),
        ("v5.0 IBM carina_ngpu1024_ngc25.04_nemo", 1024, 399, 11),
        ("v5.0 IBM carina_ngpu1536_ngc25.04_nemo", 1536, 401, 12),
        ("v5.0 IBM carina_ngpu2048_ngc25.04_nemo", 2048, 537, 10),
        ("v5.0 NVIDIA eos-dfw_n256_ngc25.01_nemo", 2048, 321, 28),
        ("v5.0 NVIDIA eos-dfw_n304_ngc25.01_nemo", 2432, 315, 27),
        ("v5.0 IBM carina_ngpu2496_ngc25.04_nemo", 2496, 497, 10),
        ("v5.0 NVIDIA eos-dfw_n320_ngc25.01_nemo", 2560, 314, 27),
        ("v5.0 NVIDIA eos-dfw_n1024_ngc25.01_nemo", 8192, 372, 11),
    ),
    "gpt3": (
        ("v4.0 NVIDIA eos_n64_ngc24.04_nemo", 512, 243, 120),
        ("v4.0 NVIDIA eos-dfw_n1344_ngc24.04_nemo", 10752, 530, 10),
        ("v4.0 NVIDIA eos-dfw_n1452_ngc24.04_nemo", 11616, 519, 9),
    ),
    "llama2_70b_lora": (
        ("v5.0 Dell 1xXE7745x4H200-NVL-141GB", 4, 69, 69),
        ("v5.0 Oracle 1xBM.GPU.GB200.4", 4, 196, 30),
        ("v5.0 Dell 1xXE9680Lx8B200-SXM-180GB", 8, 279, 15),
        ("v5.0 GigaComputing G893-SD1_pytorch", 8, 275, 15),
        ("v4.0 JuniperNetworks h100_n1_ngc24.1_pytorch_deepspeed", 8, 2, 244),
        ("v5.0 Lenovo SR780aV3-8xB200_SXM_180GB", 8, 226, 15),
        ("v5.0 MangoBoost MI300X-LLMBoost-GPUBoost-1node", 8, 108, 50),
        ("v5.0 NVIDIA nyx_n1_ngc25.04_nemo", 8, 271, 15),
        ("v5.0 Oracle 1xBM.GPU.B200.8", 8, 261, 15),
        ("v5.0 QCT D74H-7U", 8, 61, 32),
        ("v5.0 Dell 2xXE9680Lx8H200-SXM-141GB", 16, 37, 17),
        ("v5.0 MangoBoost MI300X-LLMBoost-GPUBoost-2node", 16, 92, 41),
        ("v5.0 Dell 8xXE9712x4GB200", 32, 335, 5),
        ("v4.0 JuniperNetworks h100_n4_ngc24.1_pytorch_deepspeed", 32, 2, 197),
        ("v5.0 MangoBoost MI300X-LLMBoost-GPUBoost-4node", 32, 90, 33),
        ("v5.0 Dell 9xXE9712x4GB200", 36, 347, 4),
        ("v5.0 Dell 16xXE9712x4GB200", 64, 328, 3),
        ("v4.0 JuniperNetworks a100_n8_ngc24.1_pytorch_deepspeed", 64, 3, 445),
        ("v5.0 Oracle 8xBM.GPU.B200.8", 64, 367, 4),
        ("v5.0 SCITIX scitix_n8_ngc24.09_nemo", 64, 107, 11),
        ("v5.0 NVIDIA tyche_ngpu72_ngc25.04_nemo", 72, 142, 2),
        ("v5.0 Oracle 18xBM.GPU.GB200.4", 72, 151, 2),
        ("v5.0 NVIDIA tyche_ngpu144_ngc25.04_nemo", 144, 144, 2),
        ("v5.0 NVIDIA tyche_ngpu512_ngc25.04_nemo", 512, 158, 3),
        ("v5.0 Oracle 64xBM.GPU.H200.8", 512, 43, 14),
    ),
    "bert": (
        ("v4.0 Dell R760xax4L40S", 4, 34, 328),
        ("v4.0 ASUSTeK ESC_N8A-E12", 8, 21, 19),
        ("v5.0 Dell 2xXE9680Lx8B200-SXM-180GB", 16, 16, 7),
        ("v5.0 Dell 8xXE9712x4GB200", 32, 45, 5),
        ("v5.0 Cisco hpf_n8", 64, 21, 5),
        ("v5.0 NVIDIA tyche_ngpu512_ngc25.04_pytorch", 512, 7, 1),
        ("v4.0 NVIDIA eos_n434_ngc23.09_pytorch", 3472, 49, 1),
    ),
}  # fmt: skip
PUBLIC_JOBS = {
    "llama31_405b": (405.0, FSDP, None), "gpt3": (175.0, ZERO1, None), "llama2_70b_lora": (70.0, FSDP, 0.0006),
    "bert": (0.34, DDP, None),
}  # fmt: skip


def study(is_small: bool) -> Iterator[tuple[str, bool]]:
    """Yield for each job its pause and its timeouts, and whether they suit each other; then fast and slow storage."""
    yield f"{'job':<46}{'pause s':>9}{'start s':>9}{'then s':>8}", True
    for each in JOBS[:5] if is_small else JOBS:
        safe = safe_timeout(job_of(each), measured(each.measured))
        most_s = max(FLOOR_S.value, MOST_ABOVE * each.pause_s)
        # What is not measured may be longer than it is: the page gives both ends and says what measures it.
        is_kept = safe.pg_timeout_s >= each.pause_s and (
            safe.training_timeout_s <= max(most_s, safe.floor_s) or each.measured is None
        )
        row = f"{each.name:<46}{each.pause_s:>9.0f}{safe.init_timeout_s:>9}{safe.training_timeout_s:>8}"
        yield row, is_kept and safe.pg_timeout_s <= CAP_S.value
    yield from public_logs(is_small)
    for each in JOBS:
        speeds = [None, (0.2, 0.2), (1.0, 2.0), (2.0, 16.0), (5.0, 100.0), (20.0, 2000.0)]
        found = [safe_timeout(job_of(each), measured(pair)) for pair in speeds]
        falls = all(a.pg_timeout_s >= b.pg_timeout_s for a, b in itertools.pairwise(found))
        if not falls:
            yield f"{each.name}: faster storage gives a longer timeout", False
    yield f"faster storage gave a longer timeout to none of {len(JOBS)} jobs", True


def public_logs(is_small: bool) -> Iterator[tuple[str, bool]]:
    """Yield for each public log its longest times without a line and its timeouts, without and with its storage.

    A storage that was not measured is assumed to be slow, so that only the lower end is held. As fast as the log shows,
    the timeouts are at most five times as long as what was seen, or the minimum.
    """
    yield f"{'public log':<70}{'start s':>9}{'then s':>8}{'timeouts':>12}{'storage known':>15}", True
    for benchmark, logs in PUBLIC.items():
        billions, strategy, lora_share = PUBLIC_JOBS[benchmark]
        for name, ranks, start_s, then_s in logs[:3] if is_small else logs:
            job = job_of(Known(name, billions, ranks, strategy, A, None, 0.0, lora_share=lora_share))
            loaded = billions * WEIGHT_BYTES[job.dtype] / max(1, start_s)  # GB/s
            first, known = (safe_timeout(job, measured(each)) for each in (None, (loaded, loaded)))
            is_long = all(
                each.init_timeout_s >= start_s and each.training_timeout_s >= then_s for each in (first, known)
            )
            most_s = [max(known.floor_s, MOST_ABOVE * each) + MINUTE_S for each in (start_s, then_s)]  # whole minutes
            is_short = known.init_timeout_s <= most_s[0] and known.training_timeout_s <= most_s[1]
            both = [f"{each.init_timeout_s} {each.training_timeout_s}" for each in (first, known)]
            row = f"{benchmark + ', ' + name:<70}{start_s:>9}{then_s:>8}{both[0]:>12}{both[1]:>15}"
            yield row, is_long and is_short


def job_of(known: Known) -> Job:
    """Return the job as a user describes it."""
    count = int(known.billions * BILLION)
    return Job(
        ParamCount(count, count), strategy=known.strategy, save=known.save, world_size=known.ranks,
        lora_share=known.lora_share, preprocess_s=known.preprocess_s,
    )  # fmt: skip


def measured(speeds: tuple[float, float] | None) -> Timings:
    """Return the timings of a machine of which only storage was measured, if that."""
    if speeds is None:
        return timings(None, 0, None, {})
    one, together = (each * BILLION for each in speeds)
    return timings(None, 0, StorageSpeed("/ckpt", 8, 1 << 30, one, together, one, together, 5.0), {})
