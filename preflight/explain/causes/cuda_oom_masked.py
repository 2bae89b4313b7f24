"""One rank ran out of GPU memory, and the other ranks reported only a timeout or a lost connection."""

from __future__ import annotations

import re

from preflight.explain.cause import Cause, Claim, Remedy, Sign, fill_in
from preflight.explain.event import Authority, Event
from preflight.explain.log_evidence import LogEvidence
from preflight.model.explanation import Confidence
from preflight.model.job_phases import Phase

ABSURD = re.compile(r"more than 1EB|1EB memory")  # nccl#1284: what aborted buffers lead to
VERDICT = "{who}{host} ran out of GPU memory, which caused the other errors in the log."
KV_CACHE = re.compile(r"KV cache|No available memory for the cache blocks|increase --mem")
OF_KV_CACHE = "The KV cache of the serving engine does not fit into the GPU memory that is left{host}."
OF_REPORT = (
    "{who}{host} probably ran out of GPU memory. torch then asks the driver who uses the memory, and this question "
    "failed."
)
UPDATE = "`nvidia-smi` must work where the job runs. If it fails, the driver was replaced while it was loaded: reboot."
MORE_GPUS = "Split the model over more GPUs: a larger --tensor-parallel-size (SGLang: --tp-size)."
THREAD = " A thread caught the error. The rank then continued to run but no longer took part."
SWALLOWED = re.compile(r"[Cc]atch exception|in thread|Thread-\d|[Tt]hread:")


def judge(evidence: LogEvidence, own_events: tuple[Event, ...]) -> Claim | None:
    """Return the conclusion that a rank ran out of GPU memory.

    Return None if every memory request in `own_events` is impossibly large.
    """
    events = tuple(event for event in own_events if not ABSURD.search(event.text))
    if not events:
        return None
    words = OF_KV_CACHE if KV_CACHE.search(events[0].text) else VERDICT
    verdict = fill_in(words, events[:1] if events[0].rank else events)
    if events[0].sign == "gpu_oom.handle":
        because = (
            "a library could not start on the GPU: usually the GPU has no free memory, rarely the version is wrong"
        )
        return Claim(events[0].authority, events, Confidence.LOW, because, verdict)
    if events[0].sign == "gpu_oom.report":
        because = "torch asks NVML for this when the memory of a GPU is full (pytorch/pytorch 112377)"
        return Claim(events[0].authority, events, Confidence.MEDIUM, because, fill_in(OF_REPORT, events))
    if SWALLOWED.search(events[0].text):
        verdict += THREAD
    return Claim(events[0].authority, events, Confidence.HIGH, "the log states the cause", verdict)


def remedy(evidence: LogEvidence, claim: Claim) -> Remedy:
    """Return the repair steps for full GPU memory, for a serving engine or for a training job."""
    leftovers = (
        "If the job ran out of memory at its start, run `nvidia-smi`, and end leftover processes of earlier jobs."
    )
    if KV_CACHE.search(claim.events[0].text):
        return Remedy(
            "Lower --max-model-len (SGLang: --context-length), or raise --gpu-memory-utilization (SGLang: "
            "--mem-fraction-static) up to 0.95. If the engine knows how much memory is needed, the line says how much.",
            MORE_GPUS,
            leftovers,
        )
    if (evidence.frameworks["engine"] and not _trains(evidence)) or "Capture cuda graph" in claim.events[0].text:
        return Remedy(
            "Lower --gpu-memory-utilization (SGLang: --mem-fraction-static) by 0.05: graph capture and requests need "
            "memory in addition to the weights and the KV cache.",
            "Lower --max-num-seqs (SGLang: --max-running-requests, --cuda-graph-max-bs).",
            MORE_GPUS,
            "If training ran out of memory, use a smaller micro batch, gradient checkpointing or offload.",
            leftovers,
        )
    return Remedy(
        "Use less GPU memory: try a smaller per-device batch (with more gradient accumulation), gradient "
        "checkpointing, shorter sequences, ZeRO-3/FSDP, offload or an 8-bit optimizer. A longer timeout does not help.",
        leftovers,
        *((UPDATE,) if claim.events[0].sign == "gpu_oom.report" else ()),
        "If PyTorch reserves much more memory than it allocates (fragmentation), run: export "
        "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
        "If memory ran out in a checkpoint, gather weights on the CPU (FSDP: offload_to_cpu=True). If memory ran "
        "out in an evaluation, halve its batch.",
    )


def _trains(evidence: LogEvidence) -> bool:
    """Return whether the job trains a model. A job that is only a serving engine does not train.

    A job of reinforcement learning contains a serving engine, but also trains.
    """
    return any(record.phase is Phase.TRAINING for source in evidence.sources for record in source.phases)


CAUSE = Cause(
    promise="A GPU had no free memory left.",
    signs=(
        Sign("gpu_oom.torch", Authority.OWN_ERROR, "the GPU had no memory left for this request",
             r"(?:CUDA|HIP|NPU|XPU|MUSA) out of memory|torch(?:\.cuda)?\.OutOfMemoryError|CUDA [Ee]rror: out of memory|"
             r"HIP error: out of memory|hipErrorOutOfMemory|OutOfMemoryError: (?:CUDA|HIP|NPU|Tried)|"
             r"EL0004|rtMalloc[^\n]{0,40}fail|"
             r"cudaErrorMemoryAllocation|CUDA_ERROR_OUT_OF_MEMORY|CUBLAS_STATUS_ALLOC_FAILED|CUDNN_STATUS_ALLOC_FAILED|"
             r"CUDA (?:driver error|runtime error|Error): out of memory|cuda runtime error \(2\) : out of memory|"
             r"RESOURCE_EXHAUSTED: (?:Out of memory|Failed to allocate)|"
             r"Not enough memory for the KV cache|KV cache[^\n]{0,80}larger than the (?:available|maximum)|"
             r"Triton Error \[(?:CUDA|HIP)\]: out of memory|"
             r"(?:UR_RESULT|PI|ZE_RESULT)_ERROR_OUT_OF_(?:RESOURCES|DEVICE_MEMORY)|"
             r"Resource exhausted: OOM|cudaMalloc[^\n]{0,90} out of memory|"
             r"Not enough memory\. Please try to increase --mem|"
             r"on startup is less than desired GPU memory utilization|"
             r"OOM when allocating tensor|No available memory for the cache blocks|"
             r"Ran out of memory in memory space hbm"),
        Sign("gpu_oom.report", Authority.OWN_ERROR, "torch could not read from NVML who uses the GPU's memory",
             r"NVML_SUCCESS == [^\n]{1,90}INTERNAL ASSERT FAILED"),
        Sign("gpu_oom.handle", Authority.EXCEPTION, "a library found too little GPU memory to start",
             r"(?:CUBLAS|CUDNN|CUSOLVER|CUSPARSE)_STATUS_NOT_INITIALIZED|DNN library initialization failed"),
        Sign("gpu_oom.nccl", Authority.OWN_ERROR, "NCCL found no GPU memory for its buffers",
             r"Cuda failure (?:2 )?'out of memory'|Failed to CUDA (?:calloc|malloc)|CUDA failure 2\b"),
    ),
    judge=judge,
    remedy=remedy,
    confirmed_if="torch.cuda.max_memory_allocated() on the failed rank is near the GPU's memory size",
    confirm_with="run the same command with half the batch",
    outranks=("not_nccl", "nccl_plugin_problem"),
)  # fmt: skip
