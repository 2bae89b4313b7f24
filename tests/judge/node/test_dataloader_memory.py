from __future__ import annotations

from preflight.judge.node.dataloader_overcommit import dataloader_memory
from preflight.model.facts import Gap, Limit
from preflight.model.finding import Blame, Severity
from tests.judge.findings import found, on, on_gpus, only, skips
from tests.node_facts import GIB, contained, gpu_case, gpu_node, node, system


def test_no_limit_is_fine() -> None:
    assert on_gpus(dataloader_memory, gpu_node()) == ()


def test_a_limit_that_leaves_each_rank_enough_is_fine() -> None:
    assert on_gpus(dataloader_memory, gpu_node(2, system=system(cgroup_memory_limit_bytes=8 * GIB))) == ()


def test_a_small_limit_of_a_container_is_a_warning_with_its_fix() -> None:
    finding = only(on_gpus(dataloader_memory, contained(gpu_node(2, system=system(cgroup_memory_limit_bytes=2 * GIB)))))
    assert (finding.severity, finding.blame) == (Severity.WARN, Blame.CONTAINER)
    assert "--memory=8g" in finding.fix
    assert "1 GiB" in str(finding.evidence)


def test_without_gpus_it_is_a_note() -> None:
    assert only(on(dataloader_memory, node(system=system(cgroup_memory_limit_bytes=GIB)))).severity is Severity.INFO


def test_probe_counts_the_gpus() -> None:
    small = system(cgroup_memory_limit_bytes=16 * GIB)
    assert (
        only(found(dataloader_memory, gpu_case(nodes=(gpu_node(8, system=small),), world_size=0))).severity
        is Severity.WARN
    )


def test_a_limit_that_could_not_be_read_skips_the_check() -> None:
    facts = gpu_node(system=system(cgroup_memory_limit_bytes=Gap("no cgroup")))
    assert skips(dataloader_memory, gpu_case(nodes=(facts,)))[0].reason == "no cgroup"
    assert Limit.UNLIMITED.value == "unlimited"
