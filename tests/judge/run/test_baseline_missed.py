"""A node beside known-good ones: rejected only after repetitions, and only beside the same hardware."""

from __future__ import annotations

from dataclasses import replace

import pytest

from preflight.errors import UnreadableFact
from preflight.fleet.baseline import learn
from preflight.judge.check import Case, run_checks
from preflight.judge.run.baseline_missed_policy_floor import baseline_missed
from preflight.judge.run.busbw_low import busbw_low
from preflight.judge.speed_judges import hardware_of_case, judged_by
from preflight.judge.verdict import decide
from preflight.model.baseline import MOST_REPEATS, Baseline, software_of
from preflight.model.collective import Collective
from preflight.model.finding import Finding, Severity
from preflight.model.policy import Floor, Policy
from preflight.model.report import NodeVerdict, SpeedJudge
from preflight.model.trial import (
    AGAIN,
    DEFAULT,
    UNDER_LOAD,
    Outcome,
    TrialResult,
    without_speeds,
)
from preflight.system.links import load_links
from tests.judge.findings import applies_not
from tests.node_facts import GIB, advice, gpu_case, result, trial

GOOD_GB_S = 200.0
OLDER = (("torch", "2.4.0"),)
RING = ("0>1 via P2P/CUMEM",)


def measured(gb_s: float, name: str = DEFAULT) -> TrialResult:
    one = replace(result(Collective.ALL_REDUCE, GIB), busbw_gb_s=gb_s)
    return trial(name, results=(one,), transport=RING)


def times(*gb_s: float) -> tuple[TrialResult, ...]:
    return measured(gb_s[0]), *(measured(speed, f"{AGAIN}{i}") for i, speed in enumerate(gb_s[1:], 1))


def golden(**changes: object) -> Baseline:
    point = (Collective.ALL_REDUCE, GIB)
    good = {f"n{i}": [{point: GOOD_GB_S * (1 + 0.002 * i)}, {point: GOOD_GB_S * (1 + 0.001 * i)}] for i in range(10)}
    kind = dict(hardware_of_case(gpu_case(gpus=(0, 1)))) | {name: str(value) for name, value in changes.items()}
    return learn(tuple(kind.items()), good)


def beside(*trials: TrialResult, baseline: Baseline | None = None, policy: Policy | None = None) -> Case:
    known = baseline or golden()
    return gpu_case(
        *trials, gpus=(0, 1), baseline=known, baseline_source="golden.json", policy=policy, links=load_links()
    )


def judged(*trials: TrialResult) -> list[Finding]:
    return list(baseline_missed.judge(beside(*trials)))


def test_a_small_loss_with_other_software_is_unknown_and_a_large_one_a_failure() -> None:
    older = replace(golden(), software=OLDER)

    def with_torch(*trials: TrialResult) -> Case:
        case = beside(*trials, baseline=older)
        assert dict(software_of(case.nodes[0]))["torch"] != "2.4.0"
        return case

    with pytest.raises(UnreadableFact, match=r"the software differs: torch .*, not 2\.4\.0"):
        list(baseline_missed.judge(with_torch(*times(184.0, 184.0, 184.0, 184.0))))
    assert [each.severity for each in baseline_missed.judge(with_torch(*times(150.0, 150.0, 150.0, 150.0)))] == [
        Severity.FAIL
    ]


def test_a_node_that_stays_slow_over_all_repetitions_is_rejected_and_every_repetition_is_shown() -> None:
    (finding,) = judged(*times(150.0, 151.0, 149.0, 150.0))
    assert finding.severity is Severity.FAIL
    assert f"in {1 + MOST_REPEATS} measurements" in finding.problem
    assert finding.evidence[0].value.count("%") == 5, "four repetitions and the minimum"


def test_a_loss_that_good_nodes_rarely_have_warns_and_rejects_nothing() -> None:
    (finding,) = judged(*times(194.0, 193.0, 194.0, 195.0))
    assert finding.severity is Severity.WARN and "few good nodes have less than" in finding.problem
    assert judged(*times(194.0, 193.0)) == [], "measured too few times"
    assert list(baseline_missed.judge(beside(*times(*[194.0] * 4), baseline=replace(golden(), software=OLDER)))) == []


def test_a_node_as_fast_as_good_ones_and_one_that_a_repetition_cleared_are_not() -> None:
    assert judged(measured(GOOD_GB_S)) == []
    assert judged(*times(190.0, 206.0, 205.0, 207.0)) == []


def test_one_slow_measurement_rejects_nobody_and_clears_nobody() -> None:
    skipped = trial(f"{AGAIN}1", Outcome.SKIPPED, problem="2 s were left before the deadline", results=())
    with pytest.raises(UnreadableFact, match="only 1 of 4 measurements were made: 2 s were left"):
        judged(measured(150.0), skipped)


def test_what_was_measured_under_load_is_no_repetition() -> None:
    with pytest.raises(UnreadableFact, match="1 of 4"):
        judged(measured(150.0), *(measured(150.0, f"{UNDER_LOAD}{i}") for i in range(1, 4)))


@pytest.mark.parametrize(
    ("name", "value"), [("GPUs", "8 x NVIDIA A100"), ("ranks", "8 on nccl"), ("machine", "aarch64")]
)
def test_other_hardware_is_no_judge_and_what_differs_is_named(name: str, value: str) -> None:
    case = beside(measured(1.0), baseline=golden(**{name: value}))
    with pytest.raises(UnreadableFact, match=f"other hardware; this node has {name}: .*, not {value}"):
        list(baseline_missed.judge(case))


def test_with_accept_other_hardware_leaves_the_node_unknown() -> None:
    case = beside(measured(GOOD_GB_S), baseline=golden(GPUs="8 x other"))
    findings, skipped, _ = run_checks((baseline_missed,), case)
    told = decide(case, findings, skipped, case.trials, advice(), (), strict=False, accept=True, cpu_path=False)
    assert (told.node_verdict, told.exit_code) == (NodeVerdict.UNKNOWN, 3)


def test_without_a_baseline_or_a_figure_that_counts_nothing_is_found() -> None:
    assert applies_not(baseline_missed, gpu_case(measured(1.0))) == "no --baseline was given"
    with pytest.raises(UnreadableFact, match="measured nothing"):
        judged(without_speeds(measured(1.0), "somebody else"))


def who(case: Case) -> list[SpeedJudge]:
    return [each.by for each in judged_by(case)]


def test_the_report_says_who_decided_about_speeds() -> None:
    policy = Policy("site.toml", "2026-11-21", floors=(Floor(Collective.ALL_REDUCE, GIB, 1.0),))
    links = gpu_case(measured(GOOD_GB_S), gpus=(0, 1), links=load_links())
    assert who(links) == [SpeedJudge.LINKS]
    assert who(beside(measured(GOOD_GB_S))) == [SpeedJudge.BASELINE]
    assert who(beside(measured(GOOD_GB_S), policy=policy)) == [SpeedJudge.POLICY, SpeedJudge.BASELINE]
    assert who(beside(measured(GOOD_GB_S), baseline=golden(GPUs="x"))) == [SpeedJudge.NOBODY, SpeedJudge.LINKS]
    assert who(gpu_case(trial(), gpus=(0, 1), links=load_links())) == [SpeedJudge.NOBODY]


def test_what_the_links_should_give_only_notes_it_where_a_baseline_or_a_floor_decides() -> None:
    slow = measured(10.0)
    (solo,) = busbw_low.judge(gpu_case(slow, gpus=(0, 1), links=load_links()))
    (beside_good,) = busbw_low.judge(beside(slow))
    assert solo.severity is Severity.FAIL
    assert beside_good.severity is Severity.INFO
    assert beside_good.problem.endswith("[the baseline golden.json decides; was fail]")
