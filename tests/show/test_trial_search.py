"""A search for the fewest settings is told by what it found: what works together, what is needed, and why."""

from __future__ import annotations

from dataclasses import replace

import pytest

from preflight.model.collective import Collective
from preflight.model.report import Report
from preflight.model.trial import DEFAULT, Candidate, Control, LogLine, Outcome, RankEnd, Scope, TrialResult
from preflight.search.settings.minimise import CORNER
from preflight.search.settings.steps import Repeat
from preflight.show.check_page import render_check
from preflight.show.console_writer import lines_of
from preflight.show.text import Style
from preflight.show.trials import is_step, search_section
from tests.node_facts import node, result, trial
from tests.reports import advice_of, report_of

P2P, SHM = ("NCCL_P2P_DISABLE", "1"), ("NCCL_SHM_DISABLE", "1")
HUNG = "all ranks hung at the first collective"


def step(name: str, setting: str, outcome: Outcome, *env: tuple[str, str]) -> TrialResult:
    problem = "" if outcome is Outcome.OK else HUNG
    return trial(name, outcome, env=env, reason=f"is {setting} needed? set are the others", problem=problem)


DEFAULT_HUNG = trial("default", Outcome.HANG, problem=HUNG)
ALL = trial(CORNER, env=(P2P, SHM), reason="all workarounds together: if this fails, none of them helps")
WITH_SHM = step("with SHM", "NCCL_SHM_DISABLE", Outcome.OK, P2P)
WITH_P2P = step("with P2P", "NCCL_P2P_DISABLE", Outcome.HANG, SHM)


def searched(*trials: TrialResult, recommended: tuple[tuple[str, str], ...] = ()) -> Report:
    return report_of(trials=trials, advice=advice_of(env=recommended))


def text(report: Report) -> str:
    return " ".join(" ".join(lines_of(search_section(report), Style(width=80))).split())


def test_what_the_rest_works_without_is_told_once_and_what_is_needed_with_its_failure() -> None:
    told = text(searched(DEFAULT_HUNG, ALL, WITH_P2P, WITH_SHM))
    assert "all workarounds works: NCCL_P2P_DISABLE=1, NCCL_SHM_DISABLE=1" in told
    assert "not needed NCCL_SHM_DISABLE: the collectives work without it" in told
    assert f"needed NCCL_P2P_DISABLE: without it, {HUNG}" in told


LOST = (RankEnd(0, "stuck", "first", "", log=(LogLine(9, "NET/IB: Got completion with status=12 opcode=0"),)),)


@pytest.mark.parametrize(
    ("duration_s", "says"),
    [
        (6.0, "the 3 trials that lost packets would take 39 to 90 s each, and all trials 2 to 5 min (computed)"),
        (40.0, ""),
    ],
)
def test_trials_that_lost_packets_sooner_than_real_adapters_say_what_real_ones_take(
    duration_s: float, says: str
) -> None:
    lost = trial("default", Outcome.HANG, problem=HUNG, ranks=LOST, duration_s=duration_s)
    other = replace(lost, candidate="hca mlx5_0:1")
    works = trial("hca mlx5_1:1", duration_s=10.0)
    again = Repeat(Candidate(DEFAULT, (), "", Scope.ANYWHERE), "hca mlx5_1:1", 1).ended(lost)
    report = report_of(
        backend="nccl", trials=(lost, other, works), nodes=(node(), node()), control=Control(reruns=(again,))
    )
    page = " ".join(render_check(report, Style(width=100)).split())
    assert says in page and ("On real adapters" in page) is bool(says)


def test_where_all_together_fail_as_well_that_is_the_message() -> None:
    failed = replace(ALL, outcome=Outcome.HANG, problem=HUNG, results=())
    assert f"all workarounds {HUNG}" in text(searched(DEFAULT_HUNG, failed))


def test_a_step_that_the_deadline_left_out_is_not_called_needed() -> None:
    skipped = step("with P2P", "NCCL_P2P_DISABLE", Outcome.SKIPPED, SHM)
    assert "not tried NCCL_P2P_DISABLE" in text(searched(DEFAULT_HUNG, ALL, skipped))


def test_nothing_is_said_where_nothing_was_searched() -> None:
    assert search_section(searched(trial())) == []


def test_the_table_shows_the_default_and_what_is_recommended_and_no_step_between() -> None:
    page = render_check(searched(DEFAULT_HUNG, ALL, WITH_P2P, WITH_SHM, recommended=(P2P,)), Style(width=80))
    table = page.partition("Trials")[2].partition("Which settings")[0]
    assert "default" in table
    assert "with the .env" in table
    assert CORNER not in table
    assert "with SHM" not in table


def test_only_trials_that_lead_to_another_one_are_steps() -> None:
    assert [is_step(each) for each in (DEFAULT_HUNG, ALL, WITH_P2P, trial("NCCL_P2P_LEVEL=SYS"))] == [
        False, True, True, False,
    ]  # fmt: skip


def test_one_rank_alone_has_the_same_speed_in_the_table_and_in_the_recommendation() -> None:
    measured = result(Collective.ALL_REDUCE, 1 << 20, (100.0,))
    alone = trial(world_size=1, results=(measured,))
    assert (measured.busbw_gb_s, measured.shown_gb_s) == (0.0, measured.algbw_gb_s)
    assert " 0.00 " not in render_check(report_of(trials=(alone,), world_size=1), Style(width=80))
