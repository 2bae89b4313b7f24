"""GPU memory that returns errors stops a job with an Xid; what waits for a reset is cured by one."""

from __future__ import annotations

from collections.abc import Iterator

from preflight.judge.check import Case, NodeCheck
from preflight.judge.chosen import chosen_gpus, must_be_known, subject
from preflight.model.facts import Gap, Gpu, NodeFacts
from preflight.model.finding import Blame, Evidence, Finding, Severity

MOST_RETIRED_PAGES = 64  # the page table of a GPU before Ampere is full then
RESET = "drain the node and reset the GPU (`nvidia-smi --gpu-reset -i N`) or reboot"
REPLACE = "take the GPU out of service: NVIDIA replaces boards in this state"
ECC, REMAP, PAGES = "nvmlDeviceGetTotalEccErrors", "nvmlDeviceGetRemappedRows", "nvmlDeviceGetRetiredPages"

Fault = tuple[Severity, str, str, Evidence]


def judge(node: NodeFacts, case: Case) -> Iterator[Finding]:
    """Yield for each chosen GPU its worst fault: a FAIL for errors and failed repairs, a WARN for one that waits."""
    gpus = chosen_gpus(node, case)
    for gpu in gpus:
        faults = [*_errors(gpu), *_rows(gpu), *_pages(gpu)]
        if not faults:
            continue
        worst = next((fault for fault in faults if fault[0] is Severity.FAIL), faults[0])
        yield Finding(
            check=CHECK.name,
            blame=CHECK.blame,
            severity=worst[0],
            subject=subject(node, gpu),
            problem="; ".join(problem for _, problem, _, _ in faults),
            fix=worst[2],
            evidence=tuple(evidence for _, _, _, evidence in faults),
        )
    must_be_known(((gpu, value) for gpu in gpus for value in _values(gpu)), "memory errors")


def _values(gpu: Gpu) -> tuple[object, ...]:
    return (gpu.ecc, gpu.row_remap, gpu.retired_pages)


def _errors(gpu: Gpu) -> Iterator[Fault]:
    count = 0 if isinstance(gpu.ecc, Gap) else gpu.ecc.volatile_uncorrected
    if not isinstance(count, Gap) and count > 0:
        problem = f"{count} uncorrectable memory error{'s' * (count > 1)} since the driver was loaded"
        yield Severity.FAIL, problem, RESET, Evidence("uncorrected errors (volatile)", str(count), ECC)


def _rows(gpu: Gpu) -> Iterator[Fault]:
    remap = gpu.row_remap
    if isinstance(remap, Gap):
        return
    if remap.has_failed:
        yield Severity.FAIL, "a memory row could not be replaced", REPLACE, Evidence("row remap failure", "yes", REMAP)
    if remap.is_pending:
        yield Severity.WARN, "a memory row waits to be replaced", RESET, Evidence("row remap pending", "yes", REMAP)


def _pages(gpu: Gpu) -> Iterator[Fault]:
    pages = gpu.retired_pages
    if isinstance(pages, Gap):
        return
    counts = [count for count in (pages.single_bit, pages.double_bit) if isinstance(count, int)]
    if sum(counts) >= MOST_RETIRED_PAGES:
        problem = f"{sum(counts)} memory pages are retired, no more can be"
        yield Severity.FAIL, problem, REPLACE, Evidence("retired pages", str(sum(counts)), PAGES)
    if pages.is_pending is True:
        problem = "a memory page waits to be retired"
        yield Severity.WARN, problem, RESET, Evidence("retirement pending", "yes", f"{PAGES}PendingStatus")


CHECK = NodeCheck(
    name="gpu-memory-errors",
    promise="the chosen GPUs' memory has no uncorrectable errors and no repair that waits or failed",
    blame=Blame.GPU,
    reads=("gpus",),
    blind_to="errors before the driver was loaded, and GPUs without ECC",
    judge=judge,
)
