from __future__ import annotations

from preflight.judge.check import run_checks
from preflight.judge.node.gpu_memory import gpu_memory
from preflight.model.facts import Gap
from preflight.model.finding import Blame, Severity
from preflight.model.gpu import GpuProcess
from tests.gpus import gpu
from tests.judge.findings import found, on_gpus, only, skips
from tests.node_facts import GIB, contained, gpu_case, gpu_node


def test_an_idle_gpu_is_fine() -> None:
    assert on_gpus(gpu_memory, gpu_node(2)) == ()


def test_half_of_the_memory_gone_is_a_warning() -> None:
    finding = only(on_gpus(gpu_memory, gpu_node(gpus=(gpu(0), gpu(1, memory_free_bytes=30 * GIB)))))
    assert finding.severity is Severity.WARN
    assert "30 GiB of 80 GiB" in finding.problem
    assert "GPU 1" in finding.subject


def test_a_full_gpu_fails() -> None:
    assert only(on_gpus(gpu_memory, gpu_node(1, gpus=(gpu(0, memory_free_bytes=GIB // 2),)))).severity is Severity.FAIL


def test_memory_that_a_process_holds_or_a_container_may_hide_is_not_the_hosts_fault() -> None:
    held = gpu(0, memory_free_bytes=0, processes=(GpuProcess(7, 80 * GIB, "python", 1000, is_ours=False),))
    full = gpu_node(1, gpus=(gpu(0, memory_free_bytes=0),))
    blames = [only(on_gpus(gpu_memory, each)).blame for each in (full, gpu_node(1, gpus=(held,)), contained(full))]
    assert blames == [Blame.HOST, Blame.APPLICATION, Blame.APPLICATION]


def test_a_full_gpu_that_is_not_used_does_not_matter() -> None:
    full = gpu_node(gpus=(gpu(0), gpu(1, memory_free_bytes=0)))
    assert found(gpu_memory, gpu_case(nodes=(full,), gpus=(0,))) == ()


def test_memory_that_could_not_be_read_skips_the_check() -> None:
    denied = gpu_node(1, gpus=(gpu(0, memory_free_bytes=Gap("NVMLError_NoPermission: this process may not use it")),))
    assert "free memory of GPU 0" in skips(gpu_memory, gpu_case(nodes=(denied,)))[0].reason


def test_what_was_found_on_one_gpu_stands_where_another_could_not_be_read() -> None:
    gpus = (gpu(0, memory_free_bytes=0), gpu(1, memory_free_bytes=Gap("denied")))
    findings, skipped, _ = run_checks((gpu_memory,), gpu_case(nodes=(gpu_node(gpus=gpus),)))
    assert (len(findings), len(skipped)) == (1, 1)
