from __future__ import annotations

from preflight.judge.node.cpu_affinity_nic_numa import cpu_affinity
from preflight.model.facts import Gap
from preflight.model.finding import Blame, Severity
from tests.gpus import gpu
from tests.judge.findings import found, on_gpus, only, skips
from tests.node_facts import contained, gpu_case, gpu_node, system

FAR = gpu(1, numa_node=1, cpu_affinity=tuple(range(32, 64)))
BOUND = gpu_node(gpus=(gpu(0), FAR), system=system(cpu_affinity=tuple(range(8))))


def test_a_process_that_may_run_near_every_gpu_is_fine() -> None:
    assert on_gpus(cpu_affinity, gpu_node(2)) == ()


def test_a_mask_without_a_gpus_node_is_a_warning() -> None:
    finding = only(on_gpus(cpu_affinity, BOUND))
    assert (finding.severity, finding.blame) == (Severity.WARN, Blame.HOST)
    assert finding.subject == "node1 GPU 1"
    assert "NUMA node 1" in finding.problem


def test_in_a_container_its_cpuset_is_to_blame() -> None:
    assert only(on_gpus(cpu_affinity, contained(BOUND))).blame is Blame.CONTAINER


def test_a_gpu_that_is_not_used_may_be_far() -> None:
    assert found(cpu_affinity, gpu_case(nodes=(BOUND,), gpus=(0,))) == ()


def test_without_nvml_the_gpus_numa_node_tells_the_cpus() -> None:
    near = gpu(0, cpu_affinity=Gap("NVMLError_NotSupported: no"))
    assert on_gpus(cpu_affinity, gpu_node(1, gpus=(near,))) == ()


def test_a_mask_that_could_not_be_read_skips_the_check() -> None:
    assert skips(cpu_affinity, gpu_case(nodes=(gpu_node(system=system(cpu_affinity=Gap("denied"))),)))
