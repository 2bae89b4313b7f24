"""One rank ran out of GPU memory, and the other ranks reported only a timeout or a lost connection."""

from __future__ import annotations

import re

from preflight.explain.cause import Cause, Claim, Sign, fill_in, fixed
from preflight.explain.event import Authority, Event
from preflight.explain.log_evidence import LogEvidence
from preflight.model.explanation import Confidence

ABSURD = re.compile(r"more than 1EB|1EB memory")  # nccl#1284: what aborted buffers lead to
VERDICT = "{who}{host} ran out of GPU memory; the other errors in the log follow from that."
THREAD = " A thread caught the error, so the rank kept running but no longer took part."
SWALLOWED = re.compile(r"[Cc]atch exception|in thread|Thread-\d|[Tt]hread:")


def judge(evidence: LogEvidence, own_events: tuple[Event, ...]) -> Claim | None:
    """Claim the first request for GPU memory that was refused; requests of absurd size after an abort do not count."""
    events = tuple(event for event in own_events if not ABSURD.search(event.text))
    if not events:
        return None
    verdict = fill_in(VERDICT, events[:1] if events[0].rank else events)
    if events[0].sign == "gpu_oom.handle":
        because = "a library could not start on the GPU; usually no memory is left, rarely its version is wrong"
        return Claim(events[0].authority, events, Confidence.LOW, because, verdict)
    if SWALLOWED.search(events[0].text):
        verdict += THREAD
    return Claim(events[0].authority, events, Confidence.HIGH, "the log says so explicitly", verdict)


CAUSE = Cause(
    promise="A GPU had no free memory left.",
    signs=(
        Sign("gpu_oom.torch", Authority.OWN_ERROR, "the GPU had no memory left for this request",
             r"(?:CUDA|HIP|NPU|XPU|MUSA) out of memory|torch(?:\.cuda)?\.OutOfMemoryError|CUDA error: out of memory|"
             r"HIP error: out of memory|hipErrorOutOfMemory|OutOfMemoryError: (?:CUDA|HIP|NPU|Tried)|"
             r"EL0004|rtMalloc[^\n]{0,40}fail|"
             r"cudaErrorMemoryAllocation|CUDA_ERROR_OUT_OF_MEMORY|CUBLAS_STATUS_ALLOC_FAILED|CUDNN_STATUS_ALLOC_FAILED|"
             r"CUDA (?:driver|runtime) error: out of memory|cuda runtime error \(2\) : out of memory|"
             r"RESOURCE_EXHAUSTED: (?:Out of memory|Failed to allocate)|"
             r"Not enough memory for the KV cache|KV cache[^\n]{0,80}larger than the (?:available|maximum)|"
             r"Triton Error \[(?:CUDA|HIP)\]: out of memory|UR_RESULT_ERROR_OUT_OF_(?:RESOURCES|DEVICE_MEMORY)|"
             r"memory capacity is unbalanced|Resource exhausted: OOM|cudaMalloc[^\n]{0,30} out of memory|"
             r"Not enough memory\. Please try to increase --mem|on startup is less than desired GPU memory utilization|"
             r"OOM when allocating tensor|No available memory for the cache blocks"),
        Sign("gpu_oom.handle", Authority.EXCEPTION, "a library found too little GPU memory to start",
             r"(?:CUBLAS|CUDNN|CUSOLVER|CUSPARSE)_STATUS_NOT_INITIALIZED|DNN library initialization failed"),
        Sign("gpu_oom.nccl", Authority.OWN_ERROR, "NCCL found no GPU memory for its buffers",
             r"Cuda failure (?:2 )?'out of memory'|Failed to CUDA (?:calloc|malloc)|CUDA failure 2\b"),
    ),
    judge=judge,
    remedy=fixed(
        "Use less GPU memory: a smaller per-device batch (with more gradient accumulation), gradient checkpointing, "
        "shorter sequences, ZeRO-3/FSDP or offload, or an 8-bit optimizer. A longer timeout does not help.",
        "If the job ran out of memory at its start, run `nvidia-smi`, and end leftover processes of earlier jobs.",
        "If PyTorch reserves much more memory than it allocates (fragmentation), run: export "
        "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
        "If memory ran out in a checkpoint, gather to the CPU (FSDP: offload_to_cpu=True); if in an evaluation, use "
        "smaller batches.",
    ),
    needs="torch.cuda.max_memory_allocated() on that rank is near the GPU's size",
    confirm_with="run the same command with half the batch",
    outranks=("not_nccl", "nccl_plugin_problem"),
)  # fmt: skip
