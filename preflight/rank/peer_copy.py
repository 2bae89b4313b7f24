"""Do copies between two GPUs arrive, and how fast are they: by copy engine and by kernel, each way and both at once.

Behind an IOMMU that translates, CUDA calls a copy successful whose bytes never arrived, so the target is filled with a
sentinel first: what still holds it was never written, anything else that is wrong was scrambled.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from preflight.errors import OutOfGpuMemory
from preflight.model.codec import encode
from preflight.model.device_job import DeviceJob
from preflight.model.gpu_test import Arrived, CopyBy, CopySeen, Direction, PairSpeed
from preflight.rank.devices import Buffer, Devices
from preflight.rank.reporting import Report

ELEMENT_BYTES = 4
LATENCY_BYTES = 16
LATENCY_REPEATS = 100
LEAST_REPEATS, MOST_REPEATS = 4, 400
Transfer = tuple[Buffer, Buffer]


def check_pair_data(devices: Devices, job: DeviceJob, report: Report) -> None:
    """Copy at every size, each way, by both means, and report for each copy what arrived."""
    a, b = job.places
    report({"cuda": devices.can_access_peer(a, b) and devices.can_access_peer(b, a)})
    cases = list(itertools.product(CopyBy, job.sizes_bytes, Direction))
    for number, (by, size_bytes, direction) in enumerate(cases):
        where = f"{size_bytes} bytes by {by.value}, {direction.value}"
        report({"stage": f"copy {number + 1}/{len(cases)}", "what": where})
        try:
            seen = _copied(devices, (a, b), by, size_bytes, direction, salt=number + 1)
        except OutOfGpuMemory as error:
            report({"inconclusive": f"{where}: {error}"})
            continue
        report({"copied": encode(seen)})


def _copied(
    devices: Devices, pair: tuple[int, int], by: CopyBy, size_bytes: int, direction: Direction, salt: int
) -> CopySeen:
    transfers = _transfers(devices, pair, by, size_bytes, direction)
    for way, (source, target) in enumerate(transfers):
        devices.write_pattern(source, 2 * salt + way)
        devices.write_sentinel(target)
    devices.copy(transfers)
    found = [devices.compare(target, 2 * salt + way) for way, (_, target) in enumerate(transfers)]
    wrong = sum(each[0] for each in found)
    untouched = sum(each[1] for each in found)
    elements = size_bytes // ELEMENT_BYTES * len(transfers)
    return CopySeen(by, direction, size_bytes, arrived(wrong, untouched), wrong, elements)


def arrived(wrong: int, untouched: int) -> Arrived:
    """Return what became of a copy of which so many elements are wrong, and so many of these hold the sentinel."""
    if not wrong:
        return Arrived.RIGHT
    return Arrived.NEVER_WRITTEN if untouched == wrong else Arrived.SCRAMBLED


def time_pair(devices: Devices, job: DeviceJob, report: Report) -> None:
    """Report bandwidth and latency each way, by both means."""
    a, b = job.places
    cases = list(itertools.product(CopyBy, job.sizes_bytes, Direction))
    for number, (by, size_bytes, direction) in enumerate(cases):
        report({"stage": f"time {number + 1}/{len(cases)}", "what": f"{by.value}, {direction.value}"})
        try:
            report({"speed": encode(_timed(devices, (a, b), by, size_bytes, direction, job.budget_s))})
        except OutOfGpuMemory as error:
            report({"inconclusive": f"{by.value}, {direction.value}: {error}"})


def _timed(
    devices: Devices, pair: tuple[int, int], by: CopyBy, size_bytes: int, direction: Direction, budget_s: float
) -> PairSpeed:
    large = _transfers(devices, pair, by, size_bytes, direction)
    took_s = measured_s(devices, large, budget_s)
    small = _transfers(devices, pair, by, LATENCY_BYTES, direction)
    devices.time_copies(small, LEAST_REPEATS)
    latency_s = devices.time_copies(small, LATENCY_REPEATS) / LATENCY_REPEATS
    return PairSpeed(by, direction, size_bytes, size_bytes * len(large) / took_s / 1e9, latency_s * 1e6)


def measured_s(devices: Devices, transfers: Sequence[Transfer], budget_s: float) -> float:
    """Return the seconds of one copy of each: so many in a row as the budget allows, the median of three rows."""
    estimate_s = max(devices.time_copies(transfers, LEAST_REPEATS) / LEAST_REPEATS, 1e-6)
    repeats = max(LEAST_REPEATS, min(MOST_REPEATS, int(budget_s / 3 / estimate_s)))
    return sorted(devices.time_copies(transfers, repeats) / repeats for _ in range(3))[1]


def _transfers(
    devices: Devices, pair: tuple[int, int], by: CopyBy, size_bytes: int, direction: Direction
) -> list[Transfer]:
    """Return sources and targets; a kernel has to do it where the target's numbers are wider than the source's."""
    a, b = pair
    ways = {Direction.A_TO_B: [(a, b)], Direction.B_TO_A: [(b, a)], Direction.BOTH: [(a, b), (b, a)]}[direction]
    count = size_bytes // ELEMENT_BYTES
    return [
        (devices.allocate(source, count, wide=False), devices.allocate(target, count, wide=by is CopyBy.SM))
        for source, target in ways
    ]
