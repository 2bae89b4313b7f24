"""Who printed a line: a host is told from a clock."""

from __future__ import annotations

import pytest

from preflight.explain.line_prefix import read_prefix
from tests.explain.logs import explain_bytes

OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 1 has a total capacity of 23.6 GiB"


@pytest.mark.parametrize(
    "line",
    [
        f"(VllmWorker rank=1 pid=811) ERROR 05-11 09:31:07 [multiproc_executor.py:120] {OOM}",
        f"2026-05-11 09:31:07 [4711] {OOM}",
        f"2026-05-11T09:31:07 [1] {OOM}",
        f"09:31:07 [0] {OOM}",
    ],
)
def test_a_clock_is_no_host(line: str) -> None:
    assert read_prefix(line).host == ""
    assert " on " not in explain_bytes(line.encode()).summary.partition(";")[0]


@pytest.mark.parametrize("host", ["gpu-7", "ip-10-0-3-9", "10.0.3.9", "4f2c91d07a6e", "a3.pod.cluster.local", "127"])
def test_the_host_of_nccls_own_lines_is_read(host: str) -> None:
    assert read_prefix(f"{host}:52:52 [0] NCCL INFO Bootstrap : Using eth0:10.0.3.9<0>").host == host
    assert read_prefix(f"0: 12:{host}:311:402 [-1] NCCL WARN Cuda failure").host == host
