"""What was seen once accuses a node when earlier runs or a counter of the hardware agree, and not before."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from preflight.judge.check import all_checks, fact_checks, run_checks
from preflight.judge.run.gpu import gpu_unkillable
from preflight.judge.run.new_hardware_errors import new_hardware_errors
from preflight.judge.run.p2p import p2p_data
from preflight.judge.seen_again import parts_of_ranks, weighed
from preflight.model.finding import Blame, Finding, Severity
from preflight.model.gap import Gap
from preflight.model.gpu import EccCounts, RecoveryAction
from preflight.model.gpu_test import Ending
from preflight.model.parts import part_of_gpu, part_of_pair, part_of_port, parts_of_node
from preflight.model.report import Report
from preflight.model.trial import Outcome, RankEnd
from tests.gpus import gpu
from tests.hardware import LOAD, counter, gemm, hardware, host_copy, pair, run_with, with_one
from tests.judge.findings import found, only
from tests.node_facts import finding, gpu_case, gpu_node, trial
from tests.reports import report_of
from tests.topology import port

A, B, C = "GPU-00000000", "GPU-00000001", "GPU-00000002"


def once(*parts: str, check: str = "intermittent", severity: Severity = Severity.FAIL) -> Finding:
    return replace(finding(severity), check=check, parts=parts, is_unconfirmed=True)


def run(*accused: str, check: str = "intermittent", tried: tuple[str, ...] = (A, B)) -> Report:
    return report_of(parts_tried=tried, findings=(once(*accused, check=check),))


@pytest.mark.parametrize(
    ("past", "is_confirmed"),
    [
        ((), False),
        ((run(),), False),
        ((run(A),), True),
        ((run(A), run()), True),
        ((run(A), run(), run()), False),  # once in the three before this one: too long ago
        ((run(B), run(B)), False),
        ((run(A), *[run(tried=(C,))] * 9), True),  # runs that did not try the GPU say nothing of it
        ((run(f"{A}+{B}"),), False),
    ],
)
def test_the_same_gpu_in_two_of_three_runs_accuses(past: tuple[Report, ...], is_confirmed: bool) -> None:
    (weighed_once,) = weighed([once(A)], past)
    assert weighed_once.is_unconfirmed is not is_confirmed
    assert ("runs with GPU-00000000" in weighed_once.problem) is is_confirmed
    assert any(each.source == "an earlier report (--history)" for each in weighed_once.evidence) is is_confirmed


def test_a_pair_is_accused_by_runs_that_tried_both() -> None:
    pair = f"{A}+{B}"
    assert not weighed([once(pair)], [run(pair), run(tried=(A,)), run(tried=(B,))])[0].is_unconfirmed
    assert weighed([once(pair)], [run(pair), run(), run()])[0].is_unconfirmed


def test_a_counter_of_the_same_hardware_accuses() -> None:
    errors = counter("aer_correctable", 500, gpu=1, subject="GPU 1")
    case = gpu_case(trial(), hardware=hardware(2, counters=(errors,)), gpus=(0, 1))
    counted = only(tuple(new_hardware_errors.judge(case)))
    assert counted.parts == (B,)
    assert not weighed([once(B), counted], ())[0].is_unconfirmed
    assert weighed([once(A), counted], ())[0].is_unconfirmed


def test_slow_and_failing_are_told_apart_and_what_was_slow_once_stops_no_job() -> None:
    slow = once(A, check="straggler")
    assert weighed([slow], [run(A)])[0].severity is Severity.WARN
    confirmed = weighed([slow], [run(A, check="p2p-slow")])[0]
    assert (confirmed.severity, confirmed.is_unconfirmed) == (Severity.FAIL, False)


def test_a_gpu_that_was_slow_in_one_run_and_fails_in_another_is_not_seen_again() -> None:
    assert weighed([once(A)], [run(A, check="gpu-slow")])[0].is_unconfirmed
    assert not weighed([once(A)], [run(A, check="gpu-unusable")])[0].is_unconfirmed


@pytest.mark.parametrize(
    ("check", "change"),
    [
        ("gpu-slow", {"gemms": (gemm(tflop_s=20.0), gemm("bfloat16", 700.0))}),
        ("gpu-throttled-under-load", {"computing": replace(LOAD, throttle_reasons=("hw_slowdown",))}),
        ("gpu-unusable", {"end": Ending.CRASH, "problem": "at multiply float32: Xid 79"}),
        ("gpu-wrong-results", {"end": Ending.WRONG, "problem": "3 wrong elements"}),
        ("pcie-copy-slow", {"copies": (host_copy(gb_s=9.0), host_copy("d2h"))}),
    ],
)
def test_a_gpu_that_fails_its_own_test_is_known_to_the_runs_to_come(check: str, change: dict[str, Any]) -> None:
    case = run_with(4, gpus=with_one(hardware(4).gpus, 2, **change))
    assert {each.check: each.parts for each in run_checks(all_checks(), case).findings}[check] == (C,)


@pytest.mark.parametrize(
    ("check", "change"),
    [
        ("gpu-recovery", {"recovery_action": RecoveryAction.GPU_RESET}),
        ("gpu-memory-errors", {"ecc": EccCounts(0, 2, 0, 2)}),
        ("gpu-throttled", {"throttle_reasons": ("hw_slowdown",)}),
        ("gpu-lost", {"temperature_c": Gap("NVMLError_GpuIsLost")}),
        ("nvlink-down", {"nvlinks": ()}),
    ],
)
def test_a_gpu_that_the_driver_tells_on_is_known_to_the_runs_to_come(check: str, change: dict[str, Any]) -> None:
    case = gpu_case(nodes=(gpu_node(gpus=(gpu(0), gpu(1, **change))),))
    assert {each.check: each.parts for each in run_checks(fact_checks(), case).findings}[check] == (B,)


def test_a_process_that_nobody_can_end_and_copies_that_get_lost_name_their_gpus() -> None:
    stuck = trial(
        outcome=Outcome.HANG, ranks=(RankEnd(0, "killed", "first", ""), RankEnd(1, "unkillable", "first", ""))
    )
    assert only(tuple(gpu_unkillable.judge(gpu_case(stuck, gpus=(0, 1))))).parts == (B,)
    lost = run_with(3, pairs=(pair(0, 1, end=Ending.WRONG), pair(0, 2, end=Ending.WRONG), pair(1, 2)))
    assert only(found(p2p_data, lost)).parts == (f"{A}+{B}", f"{A}+{C}")


def test_a_finding_that_stands_by_itself_is_left_alone() -> None:
    sure = replace(once(A), is_unconfirmed=False)
    assert weighed([sure], [run(A)]) == (sure,)


@pytest.mark.parametrize(
    ("change", "is_confirmed"),
    [
        ({}, True),
        ({"severity": Severity.WARN}, True),
        ({"severity": Severity.INFO}, False),
        ({"blame": Blame.CONTAINER}, False),
        ({"problem": "p" * 5000 + "\n" + "q" * 5000}, True),
    ],
)
def test_of_a_report_only_what_rejects_a_node_accuses(change: dict[str, Any], is_confirmed: bool) -> None:
    past = report_of(parts_tried=(A,), findings=(replace(once(A), **change),))
    (weighed_once,) = weighed([once(A)], [past])
    assert weighed_once.is_unconfirmed is not is_confirmed
    assert all(len(each.value) <= 300 for each in weighed_once.evidence)


def test_ranks_are_the_gpus_that_they_had_and_of_two_of_whom_nobody_is_named_the_pair() -> None:
    case = gpu_case(trial(outcome=Outcome.HANG), nodes=(gpu_node(3),), gpus=(2, 1))
    assert parts_of_ranks(case, (0,)) == (C,)
    assert parts_of_ranks(case, ()) == (f"{B}+{C}",)
    assert parts_of_ranks(replace(case, gpus=(0, 1, 2), world_size=3), ()) == ()
    assert parts_of_ranks(replace(case, wants_gpus=False), (0,)) == ()


def test_parts_go_by_what_outlives_a_boot() -> None:
    node = gpu_node(2, hca_ports=(port("mlx5_0"),))
    assert part_of_gpu(node, 1) == (B,)
    assert part_of_pair(node, 1, 0) == (f"{A}+{B}",)
    assert part_of_port(node, "mlx5_0", 1) == ("port 0a00:00ff:fe00:0001",)
    assert (part_of_gpu(node, 7), part_of_pair(node, 0, 7), part_of_port(node, "mlx5_9", 1)) == ((), (), ())
    assert parts_of_node(node) == {A, B, "port 0a00:00ff:fe00:0001"}
