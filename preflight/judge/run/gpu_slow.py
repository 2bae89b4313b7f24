"""A GPU that computes slower than its siblings holds up every step of the job."""

from __future__ import annotations

from collections.abc import Iterator

from preflight.judge.check import Case, RunCheck
from preflight.judge.run.below_nccl import (
    by_gpu,
    gpu_called,
    hardware_of,
    laggards,
    models,
    must_have_run,
    must_have_speeds,
)
from preflight.model.facts import Gap
from preflight.model.finding import Blame, Evidence, Finding, Severity
from preflight.model.gpu_test import Hardware, UnderLoad

# Equal GPUs differ by some percent in what their power limit lets them do; no healthy one is a tenth below the rest.
WARN_BELOW = 0.90
FAIL_BELOW = 0.75


def judge(case: Case) -> Iterator[Finding]:
    """Yield a finding for each GPU that is slower than the others of its model, at its worst product."""
    hardware = hardware_of(case)
    if hardware is None:
        return
    worst: dict[int, tuple[float, str, float, float]] = {}
    for dtype in dict.fromkeys(gemm.dtype for test in hardware.gpus for gemm in test.gemms):
        speeds = by_gpu((t.gpu, gemm.tflop_s) for t in hardware.gpus for gemm in t.gemms if gemm.dtype == dtype)
        for gpu, value, middle in laggards(speeds, models(case), WARN_BELOW):
            found = (value / middle, dtype, value, middle)
            worst[gpu] = min(worst.get(gpu, found), found)
    for gpu, (share, dtype, value, middle) in sorted(worst.items()):
        yield Finding(
            check=CHECK.name,
            blame=CHECK.blame,
            severity=Severity.FAIL if share < FAIL_BELOW else Severity.WARN,
            subject=gpu_called(case, gpu),
            problem=f"computes at {share:.0%} of its siblings: {value:.1f} against {middle:.1f} TFLOP/s in {dtype}",
            fix="compare its clocks, power limit and heat with the others' under load: `nvidia-smi -q -d "
            "CLOCK,POWER,PERFORMANCE,TEMPERATURE`; look at its cooling and power cables",
            evidence=(
                Evidence("product", f"{value:.1f} TFLOP/s; median of the others {middle:.1f}", f"{dtype} product"),
                *_load(hardware, gpu),
            ),
        )
    must_have_speeds(hardware)
    must_have_run(hardware.gpus)


def _load(hardware: Hardware, gpu: int) -> Iterator[Evidence]:
    """Yield what NVML said of this GPU and of one other while they computed."""
    for test in hardware.gpus:
        if test.repetition == 0 and isinstance(test.computing, UnderLoad):
            seen = test.computing
            reasons = "?" if isinstance(seen.throttle_reasons, Gap) else ", ".join(seen.throttle_reasons) or "none"
            clock = "?" if isinstance(seen.sm_mhz_median, Gap) else f"{seen.sm_mhz_median:.0f} MHz"
            heat = "?" if isinstance(seen.temperature_c_max, Gap) else f"{seen.temperature_c_max} °C"
            if test.gpu == gpu:
                yield Evidence("under load", f"{clock}, {heat}, throttle reasons: {reasons}", "NVML while it computed")


CHECK = RunCheck(
    name="gpu-slow",
    promise="every chosen GPU computes as fast as its siblings",
    blame=Blame.GPU,
    reads=("hardware", "nodes"),
    blind_to="all GPUs being slow alike, a single GPU, and with two which of them is slow by less than a fifth",
    judge=judge,
)
