"""The GPUs through torch.cuda."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from preflight.errors import OutOfGpuMemory
from preflight.rank.device_check import check_device
from preflight.rank.devices import Buffer, LoadSample, Product
from preflight.rank.gemm import TorchProduct
from preflight.rank.load import nvml_sampler
from preflight.rank.pattern import SENTINEL, pattern

CUDA: Any = torch.cuda  # its classes carry no types
# A kernel that spins this long before the first copy: everything is queued when it ends, so no launch is timed
# (as nvbandwidth does). Cycles of the SM's clock; 2 ms at 2 GHz, and proportionally longer where it idles.
SPIN_CYCLES = 4_000_000
SPIN_CYCLES_PER_COPY = 40_000  # 20 us: longer than queueing one copy from Python takes


class CudaDevices:
    """CUDA as torch gives it; nothing is touched before `open`."""

    def open(self, place: int, uuid: str, bdf: str) -> None:
        device = torch.device("cuda", place)
        torch.cuda.set_device(device)
        check_device(torch.cuda.get_device_properties(device), uuid, bdf)
        with _memory_told():
            # CUDA loads each kernel at its first use, which may take longer than a copy is allowed to.
            narrow, wide = self.allocate(place, 1024, wide=False), self.allocate(place, 1024, wide=True)
            self.write_pattern(narrow, 0)
            self.write_sentinel(wide)
            self.copy([(narrow, wide)])
            self.compare(wide, 0)

    def can_access_peer(self, source: int, target: int) -> bool:
        return bool(torch.cuda.can_device_access_peer(source, target))

    def allocate(self, place: int, elements: int, wide: bool) -> Buffer:
        with _memory_told():
            return torch.empty(elements, dtype=torch.int64 if wide else torch.int32, device=f"cuda:{place}")

    def allocate_on_host(self, elements: int) -> Buffer:
        # Pinning touches every page, so they come from the NUMA node that this thread runs on. A new buffer each time:
        # torch keeps pinned memory that is freed and would give a page of another node again.
        with _memory_told():
            return torch.zeros(elements, dtype=torch.int32).pin_memory()

    def write_pattern(self, buffer: Buffer, salt: int) -> None:
        with _memory_told():
            buffer.copy_(pattern(buffer.numel(), salt, buffer.device))
            self._synchronize([(buffer, buffer)])

    def write_sentinel(self, buffer: Buffer) -> None:
        buffer.fill_(SENTINEL)
        self._synchronize([(buffer, buffer)])

    def copy(self, transfers: Sequence[tuple[Buffer, Buffer]]) -> None:
        with _memory_told():
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
        with _memory_told():
            wrong = buffer != pattern(buffer.numel(), salt, buffer.device)
            untouched = wrong & (buffer == SENTINEL)
            return int(torch.count_nonzero(wrong).item()), int(torch.count_nonzero(untouched).item())

    def product(self, place: int, dtype: str, rows: int) -> Product:
        with _memory_told():
            return TorchProduct(torch.device("cuda", place), getattr(torch, dtype), rows)

    def sampler(self, place: int, uuid: str) -> Callable[[], LoadSample]:
        return nvml_sampler(uuid)

    def _synchronize(self, transfers: Sequence[tuple[Buffer, Buffer]]) -> None:
        for device in {buffer.device for pair in transfers for buffer in pair if buffer.device.type == "cuda"}:
            torch.cuda.synchronize(device)


def _gpu_of(source: torch.Tensor, target: torch.Tensor) -> torch.device:
    """Return the GPU whose stream the copy runs on: torch takes the source's, or the only one there is."""
    return source.device if source.device.type == "cuda" else target.device


@functools.cache
def _stream(source: torch.device, target: torch.device, of: torch.device) -> Any:
    return CUDA.Stream(of)


@contextlib.contextmanager
def _streams_of_its_own(source: torch.Tensor, target: torch.Tensor) -> Iterator[None]:
    """Run on streams that only this direction uses: torch makes a copy wait for both GPUs' current streams.

    Two directions on the same streams would go one after the other.
    """
    with contextlib.ExitStack() as stack:
        for device in {source.device, target.device}:
            if device.type == "cuda":
                stack.enter_context(torch.cuda.stream(_stream(source.device, target.device, device)))
        yield


@contextlib.contextmanager
def _memory_told() -> Iterator[None]:
    """Tell a GPU without memory from a fault."""
    try:
        yield
    except torch.cuda.OutOfMemoryError as error:
        raise OutOfGpuMemory(str(error).splitlines()[0]) from None
    except RuntimeError as error:  # pinning, cuBLAS and the context itself say it in words only
        if "out of memory" in str(error).lower() or "CUBLAS_STATUS_ALLOC_FAILED" in str(error):
            raise OutOfGpuMemory(str(error).splitlines()[0]) from None
        raise
