"""A GPU that its hardware slows down while it works has bad cooling or power; the probe sees only an idle one."""

from __future__ import annotations

from collections.abc import Iterator

from preflight.errors import UnreadableFact
from preflight.judge.check import Case, RunCheck
from preflight.judge.chosen import NOT_OFFERED
from preflight.judge.gpu_throttled import HARDWARE, SOFTWARE
from preflight.judge.run.below_nccl import gpu_called, hardware_of, must_have_run
from preflight.model.facts import Gap
from preflight.model.finding import Blame, Evidence, Finding, Severity
from preflight.model.gpu_test import GpuTest, UnderLoad


def judge(case: Case) -> Iterator[Finding]:
    """Yield a FAIL for each GPU that its hardware slowed down under load, a WARN where the driver did for heat."""
    hardware = hardware_of(case)
    if hardware is None:
        return
    found: dict[int, tuple[GpuTest, tuple[str, ...]]] = {}
    for test in hardware.gpus:
        reasons = tuple(reason for reason in _reasons(test) if reason in HARDWARE | SOFTWARE)
        if reasons:
            found.setdefault(test.gpu, (test, reasons))
    for gpu, (test, reasons) in found.items():
        yield _finding(case, gpu, test, reasons)
    must_have_run(hardware.gpus)
    for test in hardware.gpus:
        if isinstance(test.computing, Gap) and test.gemms and not test.repetition:
            raise UnreadableFact(f"GPU {test.gpu} under load: {test.computing.reason}")
        seen = test.computing.throttle_reasons if isinstance(test.computing, UnderLoad) else ()
        if isinstance(seen, Gap) and not seen.reason.startswith(NOT_OFFERED):
            raise UnreadableFact(f"GPU {test.gpu} under load: {seen.reason}")


def _reasons(test: GpuTest) -> tuple[str, ...]:
    seen = test.computing
    if isinstance(seen, Gap) or isinstance(seen.throttle_reasons, Gap):
        return ()
    return seen.throttle_reasons


def _finding(case: Case, gpu: int, test: GpuTest, reasons: tuple[str, ...]) -> Finding:
    assert isinstance(test.computing, UnderLoad)  # it gave the reasons
    heat = test.computing.temperature_c_max
    hot = "" if isinstance(heat, Gap) else f" ({heat} °C)"
    told = " and ".join((HARDWARE | SOFTWARE)[reason] for reason in reasons)
    return Finding(
        check=CHECK.name,
        blame=CHECK.blame,
        severity=Severity.FAIL if any(reason in HARDWARE for reason in reasons) else Severity.WARN,
        subject=gpu_called(case, gpu),
        problem=f"slowed down while it computed: {told}{hot}",
        fix="look at fans, air or water flow and the power supplies' state in the BMC; `nvidia-smi -q -d PERFORMANCE` "
        "under load shows when it is gone",
        evidence=(Evidence("throttle reasons under load", ", ".join(reasons), "NVML while it computed"),),
    )


CHECK = RunCheck(
    name="gpu-throttled-under-load",
    promise="neither heat nor the power supply slows a chosen GPU down while it computes",
    blame=Blame.HOST,
    reads=("hardware",),
    blind_to="heat that builds up for longer than the test lasts: `--profile burn` looks for minutes",
    judge=judge,
)
