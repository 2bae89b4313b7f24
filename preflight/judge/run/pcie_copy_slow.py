"""A GPU whose copies from and to the host are far below its link starves on data and checkpoints."""

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

# Healthy copies of pinned memory reach 76 to 90 % of the link (16x gen 3: 12 of 15.75, gen 5: 55 of 63 GB/s).
WARN_BELOW = 0.60
FAIL_BELOW = 0.30
SIBLING_WARN_BELOW = 0.80


def judge(case: Case) -> Iterator[Finding]:
    """Yield a finding for each GPU and direction that is far below the link's rate or the siblings' copies."""
    hardware = hardware_of(case)
    if hardware is None:
        return
    limits = dict(hardware.host_limits_gb_s)
    for direction in ("h2d", "d2h"):
        speeds = best_copies(hardware, direction)
        slow = {gpu: (speed, limits[gpu]) for gpu, speed in speeds.items() if gpu in limits}
        below = {gpu: pair for gpu, pair in slow.items() if pair[0] < WARN_BELOW * pair[1]}
        for gpu, (speed, limit) in below.items():
            severity = Severity.FAIL if speed < FAIL_BELOW * limit else Severity.WARN
            yield _finding(case, hardware, gpu, direction, speed, limit, "its link carries", severity)
        for gpu, speed, middle in laggards(speeds, models(case), SIBLING_WARN_BELOW):
            if gpu not in below:
                yield _finding(case, hardware, gpu, direction, speed, middle, "its siblings reach", Severity.WARN)
    must_have_speeds(hardware)
    must_have_run(hardware.gpus)


def best_copies(hardware: Hardware, direction: str) -> dict[int, float]:
    """Return each GPU's speed with memory of its own NUMA node, or of the only one that was tried."""
    copies = ((test.gpu, copy) for test in hardware.gpus for copy in test.copies if copy.direction == direction)
    return by_gpu((gpu, copy.gb_s) for gpu, copy in copies if copy.is_near is not False)


def _finding(
    case: Case, hardware: Hardware, gpu: int, direction: str, speed: float, other: float, what: str, severity: Severity
) -> Finding:
    words = "from the host" if direction == "h2d" else "to the host"
    return Finding(
        check=CHECK.name,
        blame=CHECK.blame,
        severity=severity,
        subject=gpu_called(case, gpu),
        problem=f"copies {words} at {speed:.1f} GB/s; {what} {other:.1f} GB/s ({speed / other:.0%})",
        fix="`nvidia-smi -q -d PCIE` while it copies: fewer lanes or an older generation than the slot gives mean "
        "reseating the card or riser; else the slot's switch, or the BIOS' payload and relaxed ordering settings",
        evidence=(Evidence(f"{direction} copy", f"{speed:.1f} GB/s", "pinned memory"), *_link(hardware, gpu)),
    )


def _link(hardware: Hardware, gpu: int) -> Iterator[Evidence]:
    seen = next((test.copying for test in hardware.gpus if test.gpu == gpu), None)
    if isinstance(seen, UnderLoad) and not isinstance(seen.pcie_gen_max, Gap):
        lanes = "?" if isinstance(seen.pcie_width_min, Gap) else str(seen.pcie_width_min)
        yield Evidence("link while copying", f"generation {seen.pcie_gen_max}, x{lanes}", "NVML while it copied")


CHECK = RunCheck(
    name="pcie-copy-slow",
    promise="copies between the host and each chosen GPU reach what its link carries and its siblings do",
    blame=Blame.HOST,
    reads=("hardware", "nodes"),
    blind_to="links that only fill up when several GPUs copy at once",
    judge=judge,
)
