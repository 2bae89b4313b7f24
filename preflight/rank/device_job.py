"""What a child does that tests GPUs by themselves: its jobs one after another, no process group, no NCCL."""

from __future__ import annotations

import time
from typing import Any

from preflight.errors import OutOfGpuMemory, UnreadableFact
from preflight.model.codec import encode_value
from preflight.model.device_job import DeviceJob, JobKind
from preflight.model.run import Assignment
from preflight.rank.channel import Channel
from preflight.rank.devices import Devices, devices_of
from preflight.rank.gemm import run_products
from preflight.rank.host_copy import run_host_copies
from preflight.rank.load import Watched
from preflight.rank.peer_copy import check_pair_data, time_pair
from preflight.rank.reporting import Report

TURN_S = 30.0  # then it goes on beside whoever is late


def turn_key(label: str, place: int) -> str:
    """Return the key that says that this GPU's copies are over, or its process."""
    return f"turn/{label}/{place}"


def run_jobs(assignment: Assignment, backend_module: Any, report: Report) -> None:
    """Do the jobs; a GPU that has no memory left for one is no fault, and the next job is done all the same."""
    report({"stage": "device"})
    try:
        devices = devices_of(backend_module)
        for place in dict.fromkeys(place for job in assignment.jobs for place in job.places):
            uuid, bdf = (
                each[place] if place < len(each) else "" for each in (assignment.gpu_uuids, assignment.gpu_bdfs)
            )
            devices.open(place, uuid, bdf)
        for job in assignment.jobs:
            _run(assignment, devices, job, report)
    except UnreadableFact as error:
        report({"inconclusive": str(error)})


def _run(assignment: Assignment, devices: Devices, job: DeviceJob, report: Report) -> None:
    try:
        match job.kind:
            case JobKind.PAIR_DATA:
                check_pair_data(devices, job, report)
            case JobKind.PAIR_SPEED:
                time_pair(devices, job, report)
            case JobKind.GEMM:
                with _watch(assignment, devices, job) as watched:
                    run_products(devices, job, report)
                report({"computing": encode_seen(watched)})
            case JobKind.HOST_COPY:
                _await_turn(assignment, job, report)
                with _watch(assignment, devices, job) as watched:
                    run_host_copies(devices, job, report)
                report({"copying": encode_seen(watched)})
    except OutOfGpuMemory as error:
        report({"inconclusive": f"{job.kind.value}: {error}"})
    finally:
        if job.in_turn:
            Channel(assignment.store_path).put(turn_key(assignment.label, job.places[0]), {})


def encode_seen(watched: Watched) -> dict[str, Any]:
    """Return what was seen, or why nothing was, as JSON."""
    return encode_value(watched.seen())


def _watch(assignment: Assignment, devices: Devices, job: DeviceJob) -> Watched:
    place = job.places[0]
    uuid = assignment.gpu_uuids[place] if place < len(assignment.gpu_uuids) else ""
    return Watched(lambda: devices.sampler(place, uuid))


def _await_turn(assignment: Assignment, job: DeviceJob, report: Report) -> None:
    """Wait until the GPUs before this one have copied: side by side they would share links and memory channels."""
    report({"stage": "turn"})
    channel = Channel(assignment.store_path)
    until = time.monotonic() + TURN_S
    for before in range(job.places[0]):
        channel.wait(turn_key(assignment.label, before), until)
