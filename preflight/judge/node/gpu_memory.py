from __future__ import annotations

from collections.abc import Iterator

from preflight.judge.check import Case, Findings, node_check
from preflight.judge.finding_text import fine_size
from preflight.judge.gpus_of_node import chosen_gpus, must_be_known, subject
from preflight.judge.node_limits import is_contained
from preflight.model.bound import JUDGMENT, Bound
from preflight.model.facts import Gap, Gpu, NodeFacts, known_or
from preflight.model.finding import Blame, Evidence, Severity, Unseen
from preflight.model.gap import or_none
from preflight.model.parts import part_of_gpu

LEAST_FREE_BYTES = Bound(
    1 << 30, "bytes free; less is a FAIL",
    "a trial needs a CUDA context, NCCL's buffers and a little data",
    JUDGMENT,
    "too high: a GPU with enough memory is rejected; too low: the trial fails, instead of the check",
)  # fmt: skip
LEAST_FREE_SHARE = Bound(
    0.5, "of the memory free; less is a WARN",
    "with less memory, a job that needs the whole GPU fails in its first steps",
    JUDGMENT,
    "a wrong value has little effect, because the check only warns",
)  # fmt: skip


@node_check(
    "gpu-memory",
    blame=Blame.HOST,
    unseen=Unseen.ACCEPTANCE,
    reads=("gpus",),
    bounds=(LEAST_FREE_BYTES, LEAST_FREE_SHARE),
)
def gpu_memory(node: NodeFacts, case: Case) -> Findings:
    """Most of the chosen GPUs' memory is free.

    Yields a FAIL if the free memory is too small even for NCCL. Yields a WARN if less than half of the memory is free.

    Can't see: how much the job will need.
    """
    # If the memory of a GPU is in use, a job fails after some steps, not in its first second. The fault domain is the
    # application, unless no process exists that could hold the memory.
    gpus = chosen_gpus(node, case)
    for gpu in gpus:
        total, free = gpu.memory_total_bytes, gpu.memory_free_bytes
        if not isinstance(total, int) or not isinstance(free, int) or free >= LEAST_FREE_SHARE.value * total:
            continue
        yield gpu_memory.finding(
            Severity.FAIL if free < LEAST_FREE_BYTES.value else Severity.WARN,
            subject(node, gpu),
            f"only {fine_size(free)} of {fine_size(total)} GPU memory is free",
            "end the processes that hold the memory: run `nvidia-smi` to list them, or `fuser -v /dev/nvidia*` for "
            "processes without a context. To free the memory of a dead process, run `nvidia-smi --gpu-reset -i N`",
            Evidence("free memory", fine_size(free), "nvmlDeviceGetMemoryInfo"),
            blame=Blame.HOST if gpu.processes == () and not is_contained(node) else Blame.APPLICATION,
        )
    must_be_known(((gpu, gpu.memory_free_bytes) for gpu in gpus), "free memory")


MOST_RETIRED_PAGES = Bound(
    64, "retired pages",
    "the page table of a GPU before Ampere is then full, so it can't retire more pages",
    "NVIDIA's Dynamic Page Retirement guide [unverified]",
    "too low: a usable GPU is rejected; too high: a GPU that can't retire pages passes",
)  # fmt: skip
RESET = "drain the node, then run `nvidia-smi --gpu-reset -i N` or reboot"
REPLACE = "take the GPU out of service, because NVIDIA replaces boards in this state"
ECC, REMAP, PAGES = "nvmlDeviceGetTotalEccErrors", "nvmlDeviceGetRemappedRows", "nvmlDeviceGetRetiredPages"

Fault = tuple[Severity, str, str, Evidence]


@node_check(
    "gpu-memory-errors", blame=Blame.GPU, unseen=Unseen.ACCEPTANCE, reads=("gpus",), bounds=(MOST_RETIRED_PAGES,)
)
def gpu_memory_errors(node: NodeFacts, case: Case) -> Findings:
    """The memory of the chosen GPUs has no uncorrectable errors, and no repair is pending or has failed.

    Yields a FAIL for each chosen GPU with errors or a failed repair. Yields a WARN for each chosen GPU with only a
    pending repair.

    Can't see: errors before the driver was loaded, and GPUs without ECC.
    """
    # GPU memory that returns errors stops a job with an Xid. A reset of the GPU completes a pending repair.
    gpus = chosen_gpus(node, case)
    for gpu in gpus:
        faults = list(_faults(gpu))
        if not faults:
            continue
        worst = next((fault for fault in faults if fault[0] is Severity.FAIL), faults[0])
        yield gpu_memory_errors.finding(
            worst[0],
            subject(node, gpu),
            "; ".join(problem for _, problem, _, _ in faults),
            REPLACE if any(fix == REPLACE for _, _, fix, _ in faults) else worst[2],
            *(evidence for _, _, _, evidence in faults),
            parts=part_of_gpu(node, gpu.nvml_index),
        )
    must_be_known(
        ((gpu, each) for gpu in gpus for each in (gpu.ecc, gpu.row_remap, gpu.retired_pages)), "memory errors"
    )


def _faults(gpu: Gpu) -> Iterator[Fault]:
    count = 0 if isinstance(gpu.ecc, Gap) else known_or(gpu.ecc.volatile_uncorrected, 0)
    if count > 0:
        problem = f"{count} uncorrectable memory error{'s' * (count > 1)} since the driver was loaded"
        yield Severity.FAIL, problem, RESET, Evidence("uncorrected errors (volatile)", str(count), ECC)
    remap, pages = or_none(gpu.row_remap), or_none(gpu.retired_pages)
    if remap and remap.has_failed:
        yield (
            Severity.FAIL,
            "the GPU could not replace a bad memory row",
            REPLACE,
            Evidence("row remap failure", "yes", REMAP),
        )
    if remap and remap.is_pending:
        yield (
            Severity.WARN,
            "the GPU has a bad memory row and replaces it only at the next reset",
            RESET,
            Evidence("row remap pending", "yes", REMAP),
        )
    count = known_or(pages.single_bit, 0) + known_or(pages.double_bit, 0) if pages else 0
    if count >= MOST_RETIRED_PAGES.value:
        problem = f"{count} memory pages are retired, and the GPU can't retire more pages"
        yield Severity.FAIL, problem, REPLACE, Evidence("retired pages", str(count), PAGES)
    if pages and pages.is_pending is True:
        problem = "the GPU has a bad memory page and retires it only at the next reset"
        yield Severity.WARN, problem, RESET, Evidence("retirement pending", "yes", f"{PAGES}PendingStatus")
