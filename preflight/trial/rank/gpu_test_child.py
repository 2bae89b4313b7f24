"""A child process that runs GPU tests without NCCL. The child runs one group of jobs after another."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from typing import Any

from preflight.errors import OutOfGpuMemory, UnreadableFact
from preflight.model.codec import decode, encode_value
from preflight.model.device_job import DeviceJob, JobGroup, JobKind
from preflight.model.run_spec import Assignment
from preflight.trial.rank.channel import Channel, Report
from preflight.trial.rank.gpu_test_cuda import CudaDevices
from preflight.trial.rank.gpu_test_devices import Devices
from preflight.trial.rank.gpu_tests import check_pair_data, run_host_copies, run_products, time_pair
from preflight.trial.rank.load_sampler import Watched

STAND_IN = "DEVICES"
TURN_S = 30.0  # then it goes on beside whoever is late


def turn_key(label: str, place: int) -> str:
    """Return the channel key that is set when the GPU at `place` has finished its copies.

    The key is also set if the process of this GPU is gone.
    """
    # `label` identifies the group of jobs.
    return f"turn/{label}/{place}"


def do_groups(assignment: Assignment, backend_module: Any, report: Report, asked: Iterable[dict[str, Any]]) -> None:
    """Run the groups of jobs in `asked`, one after another, and report the results with `report`.

    Any CUDA error ends this process.
    """
    # Each item is {"label": unique in the run, "group": ...}. If a GPU has no memory left for a job, the job is
    # skipped. After a CUDA error, all later calls in the same context would fail too.
    devices: Devices | None = None
    opened: list[int] = []
    for each in asked:
        try:
            devices = devices or devices_of(backend_module, assignment)
            devices.settle(opened)
            group = decode(JobGroup, each["group"])
            for place in (place for place in group.places if place not in opened):
                report({"stage": "device"})
                _open(assignment, devices, place)
                opened.append(place)
            for job in group.jobs:
                _run(assignment, devices, job, each["label"], report)
                devices.settle(opened)
        except UnreadableFact as error:
            report({"inconclusive": str(error)})
        report({"stage": "done"})


def _open(assignment: Assignment, devices: Devices, place: int) -> None:
    gpus = assignment.gpus
    uuid, bdf = (each[place] if place < len(each) else "" for each in (gpus.uuids, gpus.bdfs))
    devices.open(place, uuid, bdf)


def devices_of(backend_module: Any, assignment: Assignment) -> Devices:
    """Return the simulated GPUs of the backend's module, or the CUDA devices if the backend is not simulated.

    Raise UnreadableFact if a simulated backend has no GPUs.
    """
    # CUDA sees only the GPUs of the assignment, because a fault of another visible GPU could make a copy fail.
    stand_in: Devices | None = getattr(backend_module, STAND_IN, None)
    if stand_in is not None:
        return stand_in
    if getattr(backend_module, "SIMULATED", False):
        raise UnreadableFact(f"the backend is a stand-in and brings no {STAND_IN} to be tested")
    uuids = assignment.gpus.uuids
    if assignment.visible and len(uuids) > max(assignment.visible):
        os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(uuids[place] for place in assignment.visible)
        return CudaDevices(assignment.visible)
    return CudaDevices()


def _run(assignment: Assignment, devices: Devices, job: DeviceJob, label: str, report: Report) -> None:
    try:
        match job.kind:
            case JobKind.PAIR_DATA:
                check_pair_data(devices, job, report)
            case JobKind.PAIR_SPEED:
                time_pair(devices, job, report)
            case JobKind.GEMM:
                with _watch(assignment, devices, job) as watched:
                    run_products(devices, job, report)
                report({"computing": encode_value(watched.under_load())})
            case JobKind.HOST_COPY:
                _await_turn(assignment, job, label, report)
                with _watch(assignment, devices, job) as watched:
                    run_host_copies(devices, job, report)
                report({"copying": encode_value(watched.under_load())})
    except OutOfGpuMemory as error:
        report({"inconclusive": f"{job.kind.value}: {error}"})
    finally:
        if job.in_turn:
            Channel(assignment.store.path).put(turn_key(label, job.places[0]), {})


def _watch(assignment: Assignment, devices: Devices, job: DeviceJob) -> Watched:
    place = job.places[0]
    uuids = assignment.gpus.uuids
    return Watched(lambda: devices.sampler(place, uuids[place] if place < len(uuids) else ""))


def _await_turn(assignment: Assignment, job: DeviceJob, label: str, report: Report) -> None:
    """Wait until the GPUs with lower places have finished their copies.

    A GPU's place is its number among the GPUs of the run on this node. Simultaneous copies would share links and memory
    channels.
    """
    report({"stage": "turn"})
    channel = Channel(assignment.store.path)
    until = time.monotonic() + TURN_S
    for before in range(job.places[0]):
        channel.wait(turn_key(label, before), until)
