from __future__ import annotations

from preflight.judge.node.memlock_nofile_pids_stack import pids
from preflight.model.facts import Gap, Limit
from preflight.model.finding import Severity
from tests.judge.findings import found, on, on_gpus, only, skips
from tests.node_facts import case, contained, failed_with, gpu_case, gpu_node, limits, node, system, trial


def test_stock_limits_are_fine() -> None:
    assert on(pids, node()) == ()
    assert on(pids, node(limits=limits(nproc=Limit.UNLIMITED))) == ()


def test_podmans_2048_are_enough_for_eight_gpus_and_100_are_not() -> None:
    def eight(limit: int) -> tuple[object, ...]:
        facts = contained(gpu_node(8, system=system(cgroup_pids_limit=limit)))
        return found(pids, gpu_case(trial(world_size=8), nodes=(facts,), world_size=8))

    assert eight(2048) == ()
    assert len(eight(100)) == 1


def test_the_tighter_limit_is_named_with_its_fix() -> None:
    finding = only(on_gpus(pids, contained(gpu_node(system=system(cgroup_pids_limit=64)))))
    assert finding.severity is Severity.WARN
    assert finding.subject.endswith("cgroup pids.max")
    assert "--pids-limit" in finding.fix
    by_ulimit = only(on(pids, node(limits=limits(nproc=50))))
    assert by_ulimit.subject.endswith("RLIMIT_NPROC")
    assert "ulimit -u" in by_ulimit.fix


def test_a_trial_that_could_not_start_a_thread_fails_the_run() -> None:
    failed = failed_with("RuntimeError: can't start new thread")
    assert only(found(pids, case(failed))).severity is Severity.FAIL


def test_one_limit_is_judged_where_the_other_could_not_be_read() -> None:
    assert only(on(pids, node(limits=Gap("denied"), system=system(cgroup_pids_limit=10)))).severity is Severity.WARN


def test_where_no_limit_could_be_read_the_check_is_skipped() -> None:
    facts = node(limits=Gap("denied"), system=system(cgroup_pids_limit=Gap("no cgroup")))
    assert skips(pids, case(nodes=(facts,)))[0].reason == "no cgroup"
