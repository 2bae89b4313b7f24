"""Matrix products whose exact result is known: how fast a GPU computes, and whether always the same and the right.

The factors are whole numbers so small that every sum is exact in float32, in whatever order and on whatever GPU it is
made; bfloat16 rounds the exact sum once. So there is one right answer, bit by bit, for all repeats and all GPUs.
"""

from __future__ import annotations

import hashlib
import statistics
import time
from typing import Any

import torch

from preflight.model.codec import encode
from preflight.model.device_job import DeviceJob, ProductSize
from preflight.model.gpu_test import Gemm
from preflight.rank.devices import Devices
from preflight.rank.pattern import factors
from preflight.rank.reporting import Report

CHECKED = 128  # rows and columns, spread over the matrix, in which every element is computed on the CPU too
WARM_UPS = 2
LEAST_REPEATS = 5
MOST_REPEATS = 20_000
REPORT_EVERY_S = 1.0
SALTS = (17, 4711)


class TorchProduct:
    """A product on a device of torch."""

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
            cuda: Any = torch.cuda
            begin, end = (cuda.Event(enable_timing=True) for _ in range(2))
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


def run_products(devices: Devices, job: DeviceJob, report: Report) -> None:
    """Multiply for the job's time at each size, and report what came of it."""
    for size in job.products:
        report({"stage": f"multiply {size.dtype}", "expected_s": job.budget_s})
        report({"gemm": encode(_run(devices, job.places[0], size, job.budget_s, report))})


def _run(devices: Devices, place: int, size: ProductSize, budget_s: float, report: Report) -> Gemm:
    product = devices.product(place, size.dtype, size.rows)
    for _ in range(WARM_UPS):
        product.multiply_us()
    product.keep()
    taken_us: list[float] = []
    differing = 0
    end_at, told_at = time.monotonic() + budget_s, time.monotonic()
    while len(taken_us) < LEAST_REPEATS or (time.monotonic() < end_at and len(taken_us) < MOST_REPEATS):
        taken_us.append(product.multiply_us())
        differing += product.differs()
        if time.monotonic() - told_at > REPORT_EVERY_S:
            told_at = time.monotonic()
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
