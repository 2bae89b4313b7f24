"""A GPU whose memory is taken fails in the first steps of a job, not in the first second."""

from __future__ import annotations

from collections.abc import Iterator

from preflight.judge.check import Case, NodeCheck
from preflight.judge.chosen import chosen_gpus, must_be_known, subject
from preflight.judge.wording import size_text
from preflight.model.facts import NodeFacts
from preflight.model.finding import Blame, Evidence, Finding, Severity

LEAST_FREE_BYTES = 1 << 30  # a CUDA context, NCCL's buffers and a little data
LEAST_FREE_SHARE = 0.5


def judge(node: NodeFacts, case: Case) -> Iterator[Finding]:
    """Yield a FAIL where not even NCCL fits, a WARN where less than half of the memory is free."""
    gpus = chosen_gpus(node, case)
    for gpu in gpus:
        total, free = gpu.memory_total_bytes, gpu.memory_free_bytes
        if not isinstance(total, int) or not isinstance(free, int) or free >= LEAST_FREE_SHARE * total:
            continue
        yield Finding(
            check=CHECK.name,
            blame=CHECK.blame,
            severity=Severity.FAIL if free < LEAST_FREE_BYTES else Severity.WARN,
            subject=subject(node, gpu),
            problem=f"only {size_text(free)} of {size_text(total)} GPU memory is free",
            fix="`nvidia-smi` lists who holds it; where nobody does, `fuser -v /dev/nvidia*` finds processes without a "
            "context, and a reset (`nvidia-smi --gpu-reset -i N`) frees what a dead one left",
            evidence=(Evidence("free memory", size_text(free), "nvmlDeviceGetMemoryInfo"),),
        )
    must_be_known(((gpu, gpu.memory_free_bytes) for gpu in gpus), "free memory")


CHECK = NodeCheck(
    name="gpu-memory",
    promise="most of the chosen GPUs' memory is free",
    blame=Blame.HOST,
    reads=("gpus",),
    blind_to="how much the job will need",
    judge=judge,
)
