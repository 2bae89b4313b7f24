"""A rank proves that CUDA gave it the GPU that was meant."""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from preflight.trial.rank.gpu_test_cuda import CudaDevices
from preflight.trial.rank.gpu_test_devices import check_device

UUID, BDF = "GPU-3b0c1c6e-1c2d-4f5a-9a3b-0123456789ab", "0000:1b:00.0"
ADDRESS = {"pci_domain_id": 0, "pci_bus_id": 0x1B, "pci_device_id": 0}


@pytest.mark.parametrize("uuid", [UUID, UUID.removeprefix("GPU-")])
def test_the_gpu_of_the_uuid_is_the_one_however_torch_writes_it(uuid: str) -> None:
    check_device(SimpleNamespace(uuid=uuid), UUID, BDF)


def test_another_uuid_is_an_error_that_names_both() -> None:
    with pytest.raises(RuntimeError, match=f"CUDA gave GPU-ff where {UUID} was asked for"):
        check_device(SimpleNamespace(uuid="ff"), UUID, BDF)


def test_a_torch_without_uuids_is_held_to_the_bus_address() -> None:
    check_device(SimpleNamespace(**ADDRESS), UUID, BDF)
    with pytest.raises(RuntimeError, match=r"CUDA gave 0000:1b:00\.0 where 0000:1c:00\.0"):
        check_device(SimpleNamespace(**ADDRESS), UUID, "0000:1c:00.0")


def test_without_an_address_to_compare_with_the_uuid_has_to_do() -> None:
    check_device(SimpleNamespace(**ADDRESS), UUID, "")


def test_a_torch_that_tells_neither_has_to_be_believed() -> None:
    check_device(SimpleNamespace(), UUID, BDF)


def test_pinned_memory_of_one_numa_node_is_never_given_out_again_for_the_next() -> None:
    devices = CudaDevices(pin=lambda tensor: tensor)
    near = weakref.ref(devices.allocate_on_host(1024))
    assert near() is not None, "torch would give its pages out again"


def test_pinned_memory_is_made_once_for_the_same_cpus(cpus: set[int]) -> None:
    devices = CudaDevices(pin=lambda tensor: tensor)
    first = devices.allocate_on_host(1024)
    assert devices.allocate_on_host(1024) is first, "a burn of hours asks for it again and again"
    assert devices.allocate_on_host(2048) is not first
    os.sched_setaffinity(0, {min(cpus)})
    assert devices.allocate_on_host(1024) is not first


@pytest.fixture
def cpus() -> Iterator[set[int]]:
    allowed = os.sched_getaffinity(0)
    if len(allowed) == 1:
        pytest.skip("one CPU has no other to choose")
    yield allowed
    os.sched_setaffinity(0, allowed)
