"""A pair of GPUs that copies far below its links, or below the pairs that are joined alike."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from statistics import median

from preflight.judge.check import Case, RunCheck
from preflight.judge.run.below_nccl import hardware_of, must_have_speeds, pair_called
from preflight.model.facts import Gap
from preflight.model.finding import Blame, Evidence, Finding, Severity
from preflight.model.gpu_test import CopyBy, Direction, Hardware, PairLimit
from preflight.plan.seats import NVLINK

# Over NVLink 88 % is usual (H200: 396 of 450 GB/s); over PCIe a host bridge between the two may cost half of the link.
NVLINK_WARN_BELOW, NVLINK_FAIL_BELOW = 0.60, 0.30
SIBLING_WARN_BELOW = 0.70

Pair = tuple[int, int]


def judge(case: Case) -> Iterator[Finding]:
    """Yield a finding for each pair that is slow; the quick profile measures none."""
    hardware = hardware_of(case)
    if hardware is None:
        return
    speeds = one_way(hardware)
    limits = {(limit.a, limit.b): limit for limit in hardware.pair_limits}
    levels: dict[str, list[Pair]] = defaultdict(list)
    for pair in speeds:
        if pair in limits:
            levels[limits[pair].level].append(pair)
    for pair, speed in speeds.items():
        limit = limits.get(pair)
        if limit is None:
            continue
        others = [speeds[other] for other in levels[limit.level] if other != pair]
        low = _low(limit)
        if speed < low * limit.gb_s:
            severity = Severity.FAIL if speed < NVLINK_FAIL_BELOW * limit.gb_s else Severity.WARN
            yield _finding(case, pair, limit, speed, f"its links carry {limit.gb_s:.0f} GB/s one way", severity)
        elif len(others) > 1 and speed < SIBLING_WARN_BELOW * median(others):
            told = f"pairs that are joined alike ({limit.level}) reach {median(others):.1f} GB/s"
            yield _finding(case, pair, limit, speed, told, Severity.WARN)
    must_have_speeds(hardware)


def one_way(hardware: Hardware) -> dict[Pair, float]:
    """Return the slower direction's copy engine speed of each pair that may access its peer."""
    found: dict[Pair, float] = {}
    for pair in hardware.pairs:
        each = [
            speed.gb_s
            for speed in pair.speeds
            if speed.by is CopyBy.COPY_ENGINE and speed.direction is not Direction.BOTH
        ]
        known = [speed for speed in each if not isinstance(speed, Gap)]
        if known and pair.cuda is not False:
            found[pair.a, pair.b] = min(known)
    return found


def _low(limit: PairLimit) -> float:
    return NVLINK_WARN_BELOW if NVLINK.fullmatch(limit.level) else 0.0  # over PCIe only siblings tell


def _finding(case: Case, pair: Pair, limit: PairLimit, speed: float, told: str, severity: Severity) -> Finding:
    over_nvlink = NVLINK.fullmatch(limit.level) is not None
    return Finding(
        check=CHECK.name,
        blame=Blame.GPU if over_nvlink else Blame.HOST,
        severity=severity,
        subject=pair_called(case, [pair]),
        problem=f"copies at {speed:.1f} GB/s over {limit.level or 'an unknown path'}; {told}",
        fix="`nvidia-smi nvlink -s` and `-e` for links that are down or repeat; reseat the bridge"
        if over_nvlink
        else "the slots' lanes and generation (`lspci -vv | grep LnkSta`), ACS on the bridges between the two",
        evidence=(Evidence("copy engine, slower direction", f"{speed:.1f} GB/s", "64 MiB, behind a spinning kernel"),),
    )


CHECK = RunCheck(
    name="p2p-slow",
    promise="copies between two chosen GPUs reach what NVLink carries, and what pairs joined alike do",
    blame=Blame.GPU,
    reads=("hardware",),
    blind_to="`--profile quick`, which times no pair; pairs slow only beside others; all PCIe pairs slow alike",
    judge=judge,
)
