"""A GPU that computes other bits than before, than its siblings or than arithmetic ruins a training run silently."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from preflight.judge.check import Case, RunCheck
from preflight.judge.run.below_nccl import gpu_called, hardware_of, must_have_run
from preflight.model.finding import Blame, Evidence, Finding, Severity
from preflight.model.gpu_test import Ending, GpuTest, Hardware

FIX = (
    "take the GPU out of service and have it replaced; before that `dcgmi diag -r 4` or NVIDIA's field diagnostics "
    "for the vendor, and `nvidia-smi -q -d ECC,ROW_REMAPPER`"
)


def judge(case: Case) -> Iterator[Finding]:
    """Yield a FAIL for each GPU with a wrong or unsteady product or host copy, or whose bits are not the others'."""
    hardware = hardware_of(case)
    if hardware is None:
        return
    told: dict[int, list[tuple[str, str]]] = defaultdict(list)
    for test in hardware.gpus:
        if test.end is Ending.WRONG:
            told[test.gpu].append((_when(test), test.problem))
    for gpu, differs in _other_bits(hardware):
        told[gpu].append(differs)
    for gpu, problems in told.items():
        yield Finding(
            check=CHECK.name,
            blame=CHECK.blame,
            severity=Severity.FAIL,
            subject=gpu_called(case, gpu),
            problem=f"computes or copies wrong: {problems[0][1]}",
            fix=FIX,
            evidence=tuple(Evidence(when, what, "products and host copies") for when, what in problems[:8]),
        )
    must_have_run(hardware.gpus)


def _when(test: GpuTest) -> str:
    return f"under load {test.repetition}" if test.repetition else "before the trials"


def _other_bits(hardware: Hardware) -> Iterator[tuple[int, tuple[str, str]]]:
    """Yield the GPUs whose result is not what most have: there is one right answer, whatever the GPU's model."""
    digests: dict[tuple[str, int], list[tuple[int, str]]] = defaultdict(list)
    for test in hardware.gpus:
        for gemm in test.gemms:
            digests[gemm.dtype, gemm.rows].append((test.gpu, gemm.digest))
    for (dtype, rows), seen in digests.items():
        counts = Counter(digest for _, digest in seen).most_common()
        # Where no result is in the majority nobody knows whose is right, and each is named.
        right = counts[0][0] if counts[0][1] > len(seen) / 2 else ""
        wrong = dict.fromkeys(gpu for gpu, digest in seen if digest != right) if len(counts) > 1 else {}
        for gpu in wrong:
            yield gpu, (f"{dtype}, {rows} rows", "its result's bits differ from those of the other GPUs or repetitions")


CHECK = RunCheck(
    name="gpu-wrong-results",
    promise="every chosen GPU computes the same bits each time, the others' bits, and the right ones",
    blame=Blame.GPU,
    reads=("hardware",),
    blind_to="what only other kernels, more heat or more time bring out; with one GPU, what the CPU did not check",
    judge=judge,
)
