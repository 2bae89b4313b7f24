"""GPU operations through torch.cuda, and the exact numbers that the tests copy and multiply.

All GPUs and all repeats must give the same bits.
"""
# The factors are integers so small that every sum is exact in float32, in any order and on any GPU. bfloat16 rounds the
# exact sum once.

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from preflight.errors import OutOfGpuMemory
from preflight.trial.rank.gpu_test_devices import Buffer, LoadSample, Product, check_device
from preflight.trial.rank.load_sampler import nvml_sampler

CUDA: Any = torch.cuda  # its classes carry no types
# A kernel that spins this long before the first copy: everything is queued when it ends, so no launch is timed
# (as nvbandwidth does). Cycles of the SM's clock; 2 ms at 2 GHz, and proportionally longer where it idles.
SPIN_CYCLES = 4_000_000
SPIN_CYCLES_PER_COPY = 40_000  # 20 us: longer than queueing one copy from Python takes
CHECKED = 128  # rows and columns, spread over the matrix, in which every element is computed on the CPU too
SALTS = (17, 4711)
SENTINEL = -1515870811  # every byte 0xa5; patterns are never negative
MODULUS = 1_000_003
LARGEST_FACTOR = 31  # 31 * 31 * 8192 < 2**24: float32 holds every sum exactly, in whatever order it is made


class CudaDevices:
    """CUDA devices through torch. No device is used before `open`."""

    # `places` has the numbers of the GPUs that are visible to CUDA, in CUDA's order. If `places` is empty, all GPUs are
    # visible.

    def __init__(
        self, places: Sequence[int] = (), pin: Callable[[torch.Tensor], torch.Tensor] = torch.Tensor.pin_memory
    ) -> None:
        self._places = tuple(places)
        self._pin = pin
        self._pinned: dict[tuple[frozenset[int], int], torch.Tensor] = {}

    def _index(self, place: int) -> int:
        return self._places.index(place) if self._places else place

    def open(self, place: int, uuid: str, bdf: str) -> None:
        device = torch.device("cuda", self._index(place))
        torch.cuda.set_device(device)
        check_device(torch.cuda.get_device_properties(device), uuid, bdf)
        with _out_of_memory_named():
            # CUDA loads each kernel at its first use, which may take longer than a copy is allowed to.
            narrow, wide = self.allocate(place, 1024, wide=False), self.allocate(place, 1024, wide=True)
            self.write_pattern(narrow, 0)
            self.write_sentinel(wide)
            self.copy([(narrow, wide)])
            self.compare(wide, 0)

    def settle(self, places: Sequence[int]) -> None:
        for place in places:
            torch.cuda.synchronize(self._index(place))
        torch.cuda.empty_cache()

    def can_access_peer(self, source: int, target: int) -> bool:
        return bool(torch.cuda.can_device_access_peer(self._index(source), self._index(target)))

    def allocate(self, place: int, elements: int, wide: bool) -> Buffer:
        with _out_of_memory_named():
            return torch.empty(
                elements, dtype=torch.int64 if wide else torch.int32, device=f"cuda:{self._index(place)}"
            )

    def allocate_on_host(self, elements: int) -> Buffer:
        # Pinning touches every page, so they come from the NUMA node that this thread runs on. None is let go before
        # the process ends: torch would give the pages of the first node out again for the second.
        key = frozenset(os.sched_getaffinity(0)), elements
        if key not in self._pinned:
            with _out_of_memory_named():
                self._pinned[key] = self._pin(torch.zeros(elements, dtype=torch.int32))
        return self._pinned[key]

    def write_pattern(self, buffer: Buffer, salt: int) -> None:
        with _out_of_memory_named():
            buffer.copy_(pattern(buffer.numel(), salt, buffer.device))
            self._synchronize([(buffer, buffer)])

    def write_sentinel(self, buffer: Buffer) -> None:
        buffer.fill_(SENTINEL)
        self._synchronize([(buffer, buffer)])

    def copy(self, transfers: Sequence[tuple[Buffer, Buffer]]) -> None:
        with _out_of_memory_named():
            for source, target in transfers:
                with _streams_of_its_own(source, target):
                    target.copy_(source, non_blocking=True)
            self._synchronize(transfers)

    def time_copies(self, transfers: Sequence[tuple[Buffer, Buffer]], repeats: int) -> float:
        timed = []
        self._synchronize(transfers)
        for source, target in transfers:
            with _streams_of_its_own(source, target):
                runs_on = _gpu_of(source, target)
                with torch.cuda.device(runs_on):
                    begin, end = (CUDA.Event(enable_timing=True) for _ in range(2))
                    CUDA._sleep(SPIN_CYCLES + SPIN_CYCLES_PER_COPY * repeats * len(transfers))
                    begin.record()
                    for _ in range(repeats):
                        target.copy_(source, non_blocking=True)
                    end.record()
                timed.append((begin, end))
        self._synchronize(transfers)
        return max(float(begin.elapsed_time(end)) for begin, end in timed) / 1e3

    def compare(self, buffer: Buffer, salt: int) -> tuple[int, int]:
        with _out_of_memory_named():
            wrong = buffer != pattern(buffer.numel(), salt, buffer.device)
            untouched = wrong & (buffer == SENTINEL)
            return int(torch.count_nonzero(wrong).item()), int(torch.count_nonzero(untouched).item())

    def product(self, place: int, dtype: str, rows: int) -> Product:
        with _out_of_memory_named():
            return TorchProduct(torch.device("cuda", self._index(place)), getattr(torch, dtype), rows)

    def sampler(self, place: int, uuid: str) -> Callable[[], LoadSample]:
        return nvml_sampler(uuid)

    def _synchronize(self, transfers: Sequence[tuple[Buffer, Buffer]]) -> None:
        for device in {buffer.device for pair in transfers for buffer in pair if buffer.device.type == "cuda"}:
            torch.cuda.synchronize(device)


def _gpu_of(source: torch.Tensor, target: torch.Tensor) -> torch.device:
    """Return the GPU on whose stream the copy runs.

    This is the GPU of the source. If the source is not on a GPU, this is the GPU of the target.
    """
    return source.device if source.device.type == "cuda" else target.device


@functools.cache
def _stream(source: torch.device, target: torch.device, of: torch.device) -> Any:
    return CUDA.Stream(of)


@contextlib.contextmanager
def _streams_of_its_own(source: torch.Tensor, target: torch.Tensor) -> Iterator[None]:
    """Run the block on streams that only this direction of copies uses.

    torch makes a copy wait for both GPUs' current streams, so two directions on the same streams would run one after
    the other.
    """
    with contextlib.ExitStack() as stack:
        for device in {source.device, target.device}:
            if device.type == "cuda":
                stack.enter_context(torch.cuda.stream(_stream(source.device, target.device, device)))
        yield


@contextlib.contextmanager
def _out_of_memory_named() -> Iterator[None]:
    """Raise OutOfGpuMemory if a GPU runs out of memory in the block.

    Other errors pass unchanged. A GPU that is full is not at fault.
    """
    try:
        yield
    except torch.cuda.OutOfMemoryError as error:
        raise OutOfGpuMemory(str(error).splitlines()[0].split(". ")[0]) from None
    except RuntimeError as error:  # pinning, cuBLAS and the context itself say it in words only
        if "out of memory" in str(error).lower() or "CUBLAS_STATUS_ALLOC_FAILED" in str(error):
            raise OutOfGpuMemory(str(error).splitlines()[0].split(". ")[0]) from None
        raise


def pattern(count: int, salt: int, device: torch.device) -> torch.Tensor:
    """Return `count` nonnegative int32 numbers on `device` that depend on the position and on `salt`.

    At the same position, almost all salts give different numbers.
    """
    places = torch.arange(count, dtype=torch.int32, device=device)
    return places.remainder_(MODULUS).mul_(1 + 2 * (salt % 997)).add_(7919 * (salt % 1009) + 1).remainder_(1 << 30)


def factors(places: torch.Tensor, salt: int) -> torch.Tensor:
    """Convert the numbers in the tensor `places` to integers from -31 to 31 that depend on `salt`, in place.

    Each number is an int64 with the place of a matrix element: row * rows + column.
    """
    mixed = places.mul_(2_654_435_761).add_(salt * 40_503).bitwise_right_shift_(11)
    return mixed.remainder_(2 * LARGEST_FACTOR + 1).sub_(LARGEST_FACTOR)


class TorchProduct:
    """A matrix product on a torch device."""

    def __init__(self, device: torch.device, dtype: torch.dtype, rows: int) -> None:
        torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False  # it would round on the way
        self._rows = rows
        self._left, self._right = (
            factors(torch.arange(rows * rows, dtype=torch.int64, device=device), salt).to(dtype).reshape(rows, rows)
            for salt in SALTS
        )
        self._result = torch.empty_like(self._left)
        self._first = torch.empty_like(self._left)

    def multiply_us(self) -> float:
        if self._result.device.type != "cuda":
            start_ns = time.perf_counter_ns()
            torch.matmul(self._left, self._right, out=self._result)
            return (time.perf_counter_ns() - start_ns) / 1e3
        with torch.cuda.device(self._result.device):
            begin, end = (CUDA.Event(enable_timing=True) for _ in range(2))
            begin.record()
            torch.matmul(self._left, self._right, out=self._result)
            end.record()
            end.synchronize()
            return float(begin.elapsed_time(end)) * 1e3

    def keep(self) -> None:
        self._first.copy_(self._result)

    def differs(self) -> bool:
        return not torch.equal(self._bits(self._first), self._bits(self._result))

    def wrong_elements(self) -> int:
        chosen = torch.linspace(0, self._rows - 1, min(CHECKED, self._rows)).to(torch.int64)
        whole = torch.arange(self._rows, dtype=torch.int64)
        left = factors(chosen[:, None] * self._rows + whole[None, :], SALTS[0]).to(torch.float64)
        right = factors(whole[:, None] * self._rows + chosen[None, :], SALTS[1]).to(torch.float64)
        exact = (left @ right).to(torch.float32).to(self._result.dtype)
        got = self._result[chosen.to(self._result.device)][:, chosen.to(self._result.device)].cpu()
        return int(torch.count_nonzero(got != exact).item())

    def digest(self) -> str:
        bits = self._bits(self._result)
        sums = (bits.sum(axis, dtype=torch.int64).cpu().tolist() for axis in (0, 1))
        return hashlib.sha256(repr(list(sums)).encode()).hexdigest()[:16]

    def _bits(self, matrix: torch.Tensor) -> torch.Tensor:
        return matrix.view(torch.int32 if matrix.element_size() == 4 else torch.int16)
