from __future__ import annotations

from preflight.judge.node.memlock_nofile_pids_stack import nofile
from preflight.model.facts import Limit
from preflight.model.finding import Severity
from tests.judge.findings import found, on, only
from tests.node_facts import case, failed_with, limits, node, trial


def test_the_stock_limit_of_1024_is_fine_on_one_node() -> None:
    assert on(nofile, node()) == ()


def test_no_limit_is_fine() -> None:
    assert on(nofile, node(limits=limits(nofile=Limit.UNLIMITED))) == ()


def test_a_limit_below_what_the_ranks_need_is_a_warning() -> None:
    finding = only(on(nofile, node(limits=limits(nofile=128))))
    assert finding.severity is Severity.WARN
    assert "ulimit -n" in finding.fix


def test_the_stock_limit_is_a_warning_for_hundreds_of_ranks() -> None:
    assert only(found(nofile, case(world_size=512))).severity is Severity.WARN


def test_the_stock_limit_is_worth_a_note_on_several_nodes() -> None:
    findings = found(nofile, case(trial(), nodes=(node(), node(host="node2")), world_size=16))
    assert [finding.severity for finding in findings] == [Severity.INFO] * 2


def test_a_trial_that_ran_out_of_descriptors_fails_the_run() -> None:
    assert only(found(nofile, case(failed_with("OSError: [Errno 24] Too many open files")))).severity is Severity.FAIL
