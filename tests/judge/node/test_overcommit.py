from __future__ import annotations

from preflight.judge.node.dataloader_overcommit import overcommit
from preflight.model.facts import Gap, Overcommit
from preflight.model.finding import Severity
from tests.judge.findings import on, on_gpus, only, skips
from tests.node_facts import GIB, gpu_case, gpu_node, node, system

NEVER = system(overcommit=Overcommit.NEVER, commit_left_bytes=8 * GIB)


def test_the_kernels_default_is_fine() -> None:
    assert on_gpus(overcommit, gpu_node()) == ()
    assert on_gpus(overcommit, gpu_node(system=system(overcommit=Overcommit.ALWAYS, commit_left_bytes=-GIB))) == ()


def test_a_kernel_that_never_overcommits_with_little_left_is_a_warning() -> None:
    finding = only(on_gpus(overcommit, gpu_node(system=NEVER)))
    assert finding.severity is Severity.WARN
    assert "vm.overcommit_memory=0" in finding.fix


def test_with_much_left_or_without_gpus_it_is_a_note() -> None:
    much = system(overcommit=Overcommit.NEVER, commit_left_bytes=500 * GIB)
    assert only(on_gpus(overcommit, gpu_node(system=much))).severity is Severity.INFO
    assert only(on(overcommit, node(system=NEVER))).severity is Severity.INFO


def test_a_setting_that_could_not_be_read_skips_the_check() -> None:
    facts = gpu_node(system=system(overcommit=Gap("not there")))
    assert skips(overcommit, gpu_case(nodes=(facts,)))[0].reason == "not there"
