"""Tests of GPUs without NCCL: copies between two GPUs, copies to and from host memory, and matrix products."""
# Behind a translating IOMMU, CUDA reports success for copies whose data never arrived. The target is therefore filled
# with a special value first. A wrong element with this value was never written. Any other wrong element was corrupted.

from __future__ import annotations

import itertools
import os
import statistics
import time
from collections.abc import Iterator, Sequence

from preflight.errors import OutOfGpuMemory
from preflight.model.codec import encode
from preflight.model.device_job import DeviceJob, NumaCpus, ProductSize
from preflight.model.gap import Gap
from preflight.model.gpu_test import Arrived, CopyBy, CopyResult, Direction, Gemm, HostCopy, PairSpeed
from preflight.trial.rank.channel import Report
from preflight.trial.rank.gpu_test_devices import Buffer, Devices

ELEMENT_BYTES = 4
LATENCY_BYTES = 16
LATENCY_REPEATS = 100
LEAST_REPEATS, MOST_REPEATS = 4, 400
WARM_UPS = 2
LEAST_PRODUCTS, MOST_PRODUCTS = 5, 20_000
REPORT_EVERY_S = 1.0
NUMA_NOT_KNOWN = Gap("the GPU's NUMA node is not known, or has no CPU that this process may use")
Transfer = tuple[Buffer, Buffer]


def check_pair_data(devices: Devices, job: DeviceJob, report: Report) -> None:
    """Copy data between two GPUs at every size in both directions, and report how each copy arrived."""
    a, b = job.places
    report({"cuda": devices.can_access_peer(a, b) and devices.can_access_peer(b, a)})
    cases = list(itertools.product(CopyBy, job.sizes_bytes, Direction))
    for number, (by, size_bytes, direction) in enumerate(cases):
        where = f"{size_bytes} bytes by {by.value}, {direction.value}"
        report({"stage": f"copy {number + 1}/{len(cases)}", "what": where})
        try:
            copied = _copied(devices, (a, b), by, size_bytes, direction, salt=number + 1)
        except OutOfGpuMemory as error:
            report({"inconclusive": f"{where}: {error}"})
            continue
        report({"copied": encode(copied)})


def _copied(
    devices: Devices, pair: tuple[int, int], by: CopyBy, size_bytes: int, direction: Direction, salt: int
) -> CopyResult:
    transfers = _transfers(devices, pair, by, size_bytes, direction)
    for way, (source, target) in enumerate(transfers):
        devices.write_pattern(source, 2 * salt + way)
        devices.write_sentinel(target)
    devices.copy(transfers)
    found = [devices.compare(target, 2 * salt + way) for way, (_, target) in enumerate(transfers)]
    wrong = sum(each[0] for each in found)
    untouched = sum(each[1] for each in found)
    elements = size_bytes // ELEMENT_BYTES * len(transfers)
    return CopyResult(by, direction, size_bytes, arrived(wrong, untouched), wrong, elements)


def arrived(wrong: int, untouched: int) -> Arrived:
    """Return how the data of a copy arrived: right, never written, or corrupted."""
    if not wrong:
        return Arrived.RIGHT
    return Arrived.NEVER_WRITTEN if untouched == wrong else Arrived.SCRAMBLED


def time_pair(devices: Devices, job: DeviceJob, report: Report) -> None:
    """Report the bandwidth and latency between two GPUs in each direction, for copies by copy engine and by SMs."""
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
    # A kernel converts to 8-byte numbers on the source's GPU, so that twice the size crosses the link.
    crossing_bytes = size_bytes * len(large) * (2 if by is CopyBy.SM else 1)
    return PairSpeed(by, direction, size_bytes, crossing_bytes / took_s / 1e9, latency_s * 1e6)


def measured_s(devices: Devices, transfers: Sequence[Transfer], budget_s: float) -> float:
    """Return how many seconds one copy of all transfers takes, as the median of three series.

    The transfers run in parallel. All three series together take about `budget_s` seconds.
    """
    estimate_s = max(devices.time_copies(transfers, LEAST_REPEATS) / LEAST_REPEATS, 1e-6)
    repeats = max(LEAST_REPEATS, min(MOST_REPEATS, int(budget_s / 3 / estimate_s)))
    return sorted(devices.time_copies(transfers, repeats) / repeats for _ in range(3))[1]


def _transfers(
    devices: Devices, pair: tuple[int, int], by: CopyBy, size_bytes: int, direction: Direction
) -> list[Transfer]:
    """Return (source buffer, target buffer) for each copy between the GPUs of `pair`.

    For copies by SMs, the numbers in the target are wider, so that a kernel has to make the copy.
    """
    a, b = pair
    ways = {Direction.A_TO_B: [(a, b)], Direction.B_TO_A: [(b, a)], Direction.BOTH: [(a, b), (b, a)]}[direction]
    count = size_bytes // ELEMENT_BYTES
    return [
        (devices.allocate(source, count, wide=False), devices.allocate(target, count, wide=by is CopyBy.SM))
        for source, target in ways
    ]


def run_host_copies(devices: Devices, job: DeviceJob, report: Report) -> None:
    """Report the speed of copies between the GPU and host memory in each direction, for every NUMA node of the job."""
    # The process first moves to the CPUs of the NUMA node. If the job names no NUMA node, the process stays on its
    # current CPUs.
    allowed = os.sched_getaffinity(0)
    try:
        for numa in job.numa or (None,):
            if numa is not None:
                os.sched_setaffinity(0, set(numa.cpus) & allowed or allowed)
            _from_here(devices, job, numa, report)
    finally:
        os.sched_setaffinity(0, allowed)


def _from_here(devices: Devices, job: DeviceJob, numa: NumaCpus | None, report: Report) -> None:
    where = "" if numa is None else f" of NUMA node {numa.numa_node}"
    for size_bytes in job.sizes_bytes:
        report({"stage": "host copies", "what": f"{size_bytes} bytes, memory{where}", "expected_s": 4 * job.budget_s})
        try:
            for copied in _both_ways(devices, job, size_bytes, numa):
                report({"host_copy": encode(copied)})
        except OutOfGpuMemory as error:
            report({"inconclusive": f"host copies{where}: {error}"})


def _both_ways(devices: Devices, job: DeviceJob, size_bytes: int, numa: NumaCpus | None) -> Iterator[HostCopy]:
    place, count = job.places[0], size_bytes // ELEMENT_BYTES
    on_host, on_gpu = devices.allocate_on_host(count), devices.allocate(place, count, wide=False)
    for salt, (direction, source, target) in enumerate((("h2d", on_host, on_gpu), ("d2h", on_gpu, on_host))):
        devices.write_pattern(source, 100 + salt)
        devices.write_sentinel(target)
        devices.copy([(source, target)])
        wrong, untouched = devices.compare(target, 100 + salt)
        result = arrived(wrong, untouched)
        took_s = measured_s(devices, [(source, target)], job.budget_s)
        yield HostCopy(
            direction=direction,
            numa_node=NUMA_NOT_KNOWN if numa is None else numa.numa_node,
            is_near=NUMA_NOT_KNOWN if numa is None else numa.is_near,
            size_bytes=size_bytes,
            gb_s=size_bytes / took_s / 1e9,
            arrived=result,
        )


def run_products(devices: Devices, job: DeviceJob, report: Report) -> None:
    """Multiply matrices of each size for the job's time budget, and report times and errors."""
    for size in job.products:
        report({"stage": f"multiply {size.dtype}", "expected_s": job.budget_s})
        report({"gemm": encode(_multiplied(devices, job.places[0], size, job.budget_s, report))})


def _multiplied(devices: Devices, place: int, size: ProductSize, budget_s: float, report: Report) -> Gemm:
    product = devices.product(place, size.dtype, size.rows)
    for _ in range(WARM_UPS):
        product.multiply_us()
    product.keep()
    taken_us: list[float] = []
    differing = 0
    end_at, reported_at = time.monotonic() + budget_s, time.monotonic()
    while len(taken_us) < LEAST_PRODUCTS or (time.monotonic() < end_at and len(taken_us) < MOST_PRODUCTS):
        taken_us.append(product.multiply_us())
        differing += product.differs()
        if time.monotonic() - reported_at > REPORT_EVERY_S:
            reported_at = time.monotonic()
            report({"stage": f"multiply {size.dtype}", "expected_s": budget_s})
    median_us = statistics.median(taken_us)
    return Gemm(
        dtype=size.dtype,
        rows=size.rows,
        repeats=len(taken_us),
        tflop_s=2 * size.rows**3 / median_us / 1e6,
        slowest_us=max(taken_us),
        median_us=median_us,
        wrong_elements=product.wrong_elements(),
        differing_repeats=differing,
        digest=product.digest(),
    )
