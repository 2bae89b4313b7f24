"""A GPU on which a matrix product or a copy to the host hangs or crashes by itself needs no look at NCCL."""

from __future__ import annotations

from collections.abc import Iterator

from preflight.judge.check import Case, RunCheck
from preflight.judge.run.below_nccl import gpu_called, hardware_of, must_have_run
from preflight.model.finding import Blame, Evidence, Finding, Severity
from preflight.model.gpu_test import Ending

WORDS = {Ending.HANG: "hangs", Ending.CRASH: "fails"}


def judge(case: Case) -> Iterator[Finding]:
    """Yield a FAIL for each GPU whose own test hung or crashed."""
    hardware = hardware_of(case)
    if hardware is None:
        return
    failed = {test.gpu: test for test in reversed(hardware.gpus) if test.end in WORDS}
    for gpu, test in sorted(failed.items()):
        yield Finding(
            check=CHECK.name,
            blame=CHECK.blame,
            severity=Severity.FAIL,
            subject=gpu_called(case, gpu),
            problem=f"{WORDS[test.end]} by itself, without another GPU and without NCCL: {test.problem}",
            fix="`dmesg | grep -iE 'xid|nvrm'` and `nvidia-smi -q` for this GPU; reset it or reboot the node, and if "
            "it happens again have it replaced",
            evidence=(Evidence("products and host copies", f"{test.end.value}: {test.problem}", f"GPU {gpu}"),),
        )
    must_have_run(hardware.gpus)


CHECK = RunCheck(
    name="gpu-unusable",
    promise="every chosen GPU multiplies matrices and copies to and from the host by itself",
    blame=Blame.GPU,
    reads=("hardware",),
    blind_to="faults that need other kernels, several GPUs or hours",
    judge=judge,
)
