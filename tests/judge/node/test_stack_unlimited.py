from __future__ import annotations

from preflight.judge.node.memlock_nofile_pids_stack import stack_unlimited
from preflight.model.facts import Gap, Limit, SoftwareFacts, TorchFacts
from preflight.model.finding import Severity
from tests.judge.findings import on, on_gpus, only
from tests.node_facts import gpu_node, limits, node

UNLIMITED = limits(stack_bytes=Limit.UNLIMITED)


def software(nccl: str | Gap) -> SoftwareFacts:
    return SoftwareFacts("3.11.7", "0.1.0", TorchFacts("2.6.0", "12.4", nccl, "/venv/torch"))


def test_the_stock_stack_is_fine() -> None:
    assert on_gpus(stack_unlimited, gpu_node()) == ()


def test_an_unlimited_stack_is_a_warning_with_an_nccl_that_overruns_its_threads() -> None:
    assert (
        only(on_gpus(stack_unlimited, gpu_node(limits=UNLIMITED, software=software("2.21.5")))).severity
        is Severity.WARN
    )


def test_an_unlimited_stack_is_fine_since_nccl_2_28() -> None:
    assert on_gpus(stack_unlimited, gpu_node(limits=UNLIMITED, software=software("2.28.3"))) == ()


def test_an_unlimited_stack_with_an_unknown_nccl_is_worth_a_note() -> None:
    facts = gpu_node(limits=UNLIMITED, software=software(Gap("no NCCL wheel")))
    assert only(on_gpus(stack_unlimited, facts)).severity is Severity.INFO


def test_an_unlimited_stack_is_no_matter_for_gloo() -> None:
    assert on(stack_unlimited, node(limits=UNLIMITED)) == ()
