"""Which reports a baseline is learnt from, and why others are left out or refused."""

from __future__ import annotations

import random
from typing import Any

import pytest

from preflight.errors import UsageError
from preflight.fleet.known_good import learn_from
from preflight.model.codec import encode
from preflight.model.facts import Gap
from preflight.model.report import NodeVerdict, Report, Verdict
from preflight.model.trial import AGAIN, Outcome, without_speeds
from preflight.show.baseline import baseline_page
from preflight.show.text import Detail, Style
from tests.reports import node_facts, report_of, trial_result

Documents = list[tuple[str, object, str]]


def good(host: str, chance: random.Random, **changes: Any) -> Report:
    return report_of(nodes=(node_facts(host=host),), trials=(trial_result(median_us=chance.gauss(800, 8)),), **changes)


def documents(*others: Report, count: int = 8, times: int = 2) -> Documents:
    chance = random.Random(4)
    reports = [good(f"n{i}", chance) for i in range(count) for _ in range(times)]
    return [(f"{place}.json", encode(report), "") for place, report in enumerate((*reports, *others))]


def test_reports_of_one_host_are_repetitions() -> None:
    learnt = learn_from(documents())
    assert learnt.reports == 16 and learnt.left_out == ()
    assert learnt.baseline.hosts == tuple(f"n{i}" for i in range(8))
    assert all(each.repetitions == 2 for each in learnt.baseline.references)
    assert dict(learnt.baseline.hardware) == {"GPUs": "none", "ranks": "2 on gloo", "machine": "x86_64"}


def test_repetitions_within_a_report_count_too() -> None:
    trials = (trial_result(), trial_result(f"{AGAIN}{1}"), trial_result(f"{AGAIN}{2}"))
    learnt = learn_from(documents(report_of(nodes=(node_facts(host="n9"),), trials=trials), times=1))
    assert max(each.repetitions for each in learnt.baseline.references) == pytest.approx(11 / 9)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"simulated": True}, "simulated"),
        ({"verdict": Verdict.NOT_READY}, "not ready"),
        ({"verdict": Verdict.UNKNOWN}, "unknown"),
        ({"node_verdict": NodeVerdict.REJECT}, "node reject"),
        ({"node_verdict": NodeVerdict.UNKNOWN}, "node unknown"),
        ({"nodes": (node_facts(), node_facts(host="b"))}, "2 nodes"),
        ({"trials": (trial_result(outcome=Outcome.HANG),)}, "failed"),
        ({"trials": (without_speeds(trial_result(), "others"),)}, "shared the GPUs"),
    ],
)
def test_what_is_not_known_good_is_left_out_with_its_reason(changes: dict[str, Any], why: str) -> None:
    (left,) = learn_from(documents(report_of(**changes))).left_out
    assert left.path == "16.json" and why in left.reason


def test_what_is_no_report_is_left_out_too() -> None:
    broken: Documents = [("x.json", None, "no JSON"), ("y.json", [], ""), ("z.json", {"schema_version": 99}, "")]
    reasons = [each.reason for each in learn_from([*documents(), *broken]).left_out]
    assert reasons[0] == "no JSON" and "no report" in reasons[1] and "use the preflight that wrote it" in reasons[2]


def test_mixed_hardware_is_refused_in_one_line_that_names_what_differs() -> None:
    with pytest.raises(UsageError, match=r"mixed hardware: 16.json has ranks: 4 on gloo, not 2 on gloo as in 0.json"):
        learn_from(documents(report_of(world_size=4)))


def test_too_few_good_nodes_are_refused_with_what_was_left_out() -> None:
    with pytest.raises(UsageError, match=r"at least 5.*1 reports were left out: simulated"):
        learn_from(documents(report_of(simulated=True), count=3))


@pytest.mark.parametrize("width", [60, 80, 120])
def test_the_page_says_what_it_learnt_and_what_a_small_loss_would_need(width: int) -> None:
    page = baseline_page(learn_from(documents(report_of(simulated=True))), "golden.json").shown(
        Detail.ALL, Style(width=width)
    )
    assert max(map(len, page.splitlines())) <= width
    told = " ".join(page.split())
    assert "8 good nodes, 16 reports" in told and "Left out (1)" in told and "--baseline golden.json" in told
    assert "never" in told or " nodes " in told


def test_an_unreadable_architecture_is_a_kind_of_its_own() -> None:
    unread = [good(f"u{i}", random.Random(i)) for i in range(6)]
    told = [
        (f"{i}", encode(report_of(nodes=(node_facts(host=f"u{i}", system=Gap("no")),), trials=each.trials)), "")
        for i, each in enumerate(unread)
    ]
    assert dict(learn_from(told).baseline.hardware)["machine"] == "unknown"
