"""Copies between a GPU and pinned memory of its own NUMA node and of the furthest one, verified and timed."""

from __future__ import annotations

import os
from collections.abc import Iterator

from preflight.errors import OutOfGpuMemory
from preflight.model.codec import encode
from preflight.model.device_job import DeviceJob, NumaCpus
from preflight.model.gap import Gap
from preflight.model.gpu_test import Arrived, HostCopy
from preflight.rank.devices import Devices
from preflight.rank.peer_copy import ELEMENT_BYTES, arrived, measured_s
from preflight.rank.reporting import Report

NOT_KNOWN = Gap("the GPU's NUMA node is not known, or has no CPU that this process may use")


def run_host_copies(devices: Devices, job: DeviceJob, report: Report) -> None:
    """Report a copy each way for every NUMA node of the job; without any, wherever this process runs."""
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
            for seen in _both_ways(devices, job, size_bytes, numa):
                report({"host_copy": encode(seen)})
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
        result: Arrived = arrived(wrong, untouched)
        took_s = measured_s(devices, [(source, target)], job.budget_s)
        yield HostCopy(
            direction=direction,
            numa_node=NOT_KNOWN if numa is None else numa.numa_node,
            is_near=NOT_KNOWN if numa is None else numa.is_near,
            size_bytes=size_bytes,
            gb_s=size_bytes / took_s / 1e9,
            arrived=result,
        )
