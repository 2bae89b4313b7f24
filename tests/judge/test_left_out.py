"""What the user has left out, a check by --skip or tests by --tests, finds nothing and speaks for no node."""

from __future__ import annotations

from dataclasses import replace

import pytest

from preflight.check.report_builder import joint_findings
from preflight.judge.check import Check, all_checks, run_checks
from preflight.judge.verdict import decide
from preflight.model.facts import Gap
from preflight.model.finding import Blame, CheckOutcome, SkippedCheck, Unseen
from preflight.model.profile import LEFT_OUT, SKIPPED
from preflight.model.report import NodeVerdict
from tests.hardware import hardware
from tests.node_facts import failed_with, finding, gpu_case, gpu_node, trial
from tests.reports import advice_of
from tests.search.nodes.test_joint_plan import solo

CHECKS = all_checks()
WORKED = trial(world_size=8, transport=("0>1 via P2P/CUMEM", "NVLS"))


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
def test_a_check_that_is_skipped_finds_nothing_and_accepts_no_node_that_it_would_have_to_show(check: Check) -> None:
    run = gpu_case(failed_with("Duplicate GPU detected"), nodes=(gpu_node(2, gpus=Gap("x")), gpu_node(2)))
    findings, (skip,), (ran,) = run_checks((check,), replace(run, skip={check.name: SKIPPED}))
    assert findings == ()
    assert (ran.outcome, ran.reason) == (CheckOutcome.NOT_RUN, "skipped by --skip")
    healthy = gpu_case(nodes=(gpu_node(2),), trials=(WORKED,))
    decision = decide(healthy, (), (skip,), (trial(),), advice_of(), (), strict=False, accept=True, cpu_path=False)
    accepts = NodeVerdict.ACCEPT if check.unseen is Unseen.NOTHING else NodeVerdict.UNKNOWN
    assert decision.node_verdict is accepts


def test_what_tests_left_out_ends_as_not_run_and_accepts_no_node() -> None:
    untested = hardware(pairs=(), gpus=(), untested=LEFT_OUT)
    checked = run_checks(CHECKS, gpu_case(nodes=(gpu_node(2),), trials=(WORKED,), hardware=untested))
    left_out = {each.check: each for each in checked.skipped if each.reason == LEFT_OUT}
    assert {"p2p-data", "gpu-wrong-results", "gpu-slow", "pcie-copy-slow"} <= set(left_out)
    assert left_out["p2p-data"].outcome is CheckOutcome.NOT_RUN
    assert left_out["p2p-data"].costs is Unseen.ACCEPTANCE
    assert {each.check: each.outcome for each in checked.ran}["new-hardware-errors"] is CheckOutcome.PASSED


def test_what_one_of_several_nodes_left_out_is_run_for_none_and_what_another_found_stays() -> None:
    nodes = (gpu_node(2), gpu_node(2))
    run = gpu_case(nodes=nodes, trials=(WORKED,), hardware=hardware(2), gpus_by_node=((0, 1), (0, 1)))
    slow = finding(check="gpu-slow", subject="GPU 1")
    away = SkippedCheck("gpu-wrong-results", Blame.GPU, LEFT_OUT, False, CheckOutcome.NOT_RUN)
    solos = {0: solo("a", findings=(slow,)), 1: solo("b", skipped_checks=(away, replace(away, check="gpu-slow")))}
    checked = joint_findings(solos, run)
    ended = {each.check: (each.outcome, each.reason) for each in checked.ran}
    assert ended["gpu-wrong-results"] == (CheckOutcome.NOT_RUN, "b: left out by --tests")
    assert ended["p2p-data"][0] is CheckOutcome.PASSED
    assert [each.subject for each in checked.findings if each.check == "gpu-slow"] == ["a, GPU 1"]
