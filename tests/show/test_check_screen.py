"""The first screen of `preflight check`: what it holds in each situation, and that it is one screen."""

from __future__ import annotations

import dataclasses

import pytest

from preflight.cli.program import COMMANDS
from preflight.model.finding import Blame, Finding, Severity
from preflight.model.report import Report
from preflight.show.check_page import Written, check_page
from preflight.show.screen import ROWS
from preflight.show.text import Detail, Style, width_of
from tests.show.golden_reports import healthy
from tests.show.outputs import SCREENS, every_report, hostile, keep_screen

# Of every command that gives a verdict a good, a bad and an unknown one, as kept by the test of its screen.
SITUATIONS = {
    "check": ("healthy", "nothing_works", "unknown"),
    "check --accept": ("accepted", "blame_gpu", "blame_harness"),
    "probe": ("probe_h100x8", "probe_fault", "probe_unknown"),
    "bench": ("bench_good", "bench_bad", "bench_unknown"),
    "run": ("run_ready", "run_refused", "run_unknown", "run_failed", "run_stuck"),
    "explain": ("explain_healthy", "explain_3b_xtuner_oom", "explain_unknown"),
    "stuck": ("stuck_moves", "stuck_save", "stuck_nobody"),
    "timeout": ("timeout_nothing", "timeout_not_enough", "timeout_unmeasured"),
    "fleet": ("fleet_alike", "fleet_failed", "fleet_unknown"),
    "diff": ("diff_changed", "diff_nothing", "diff_not_compared"),
    "baseline": ("baseline_sure", "baseline_weak", "baseline_measured_once"),
}
GIVE_NO_VERDICT = {"doctor", "gpu-report", "capture", "render", "checks", "schema"}
WRITTEN = Written("preflight.env", "preflight-report.json")
REFUSED = Written("", "preflight-report.json")
REPORTS = every_report()


def screen_of(report: Report, width: int = 80) -> str:
    return check_page(report, WRITTEN if report.exit_code == 0 else REFUSED).shown(Detail.SCREEN, Style(width))


@pytest.mark.parametrize("name", sorted(REPORTS))
def test_the_screen_is_the_expected_one(name: str) -> None:
    keep_screen(name.replace(" ", "_"), screen_of(REPORTS[name]))


@pytest.mark.parametrize("name", sorted(REPORTS))
def test_text_from_outside_is_made_visible(name: str) -> None:
    page = screen_of(hostile(REPORTS[name]))
    assert len(page.splitlines()) <= ROWS
    assert all(char.isprintable() for char in page.replace("\n", ""))


@pytest.mark.parametrize("name", sorted(REPORTS))
@pytest.mark.parametrize("width", [60, 80, 120])
def test_whatever_was_found_is_one_screen(name: str, width: int) -> None:
    long = "x" * 200 + " words" * 100
    many = tuple(
        Finding(f"check-{i}", Blame.HOST, severity, long, long, long, ()) for i, severity in enumerate([*Severity] * 20)
    )
    report = dataclasses.replace(REPORTS[name], findings=many, problems=(long,) * 5, headline=long)
    lines = screen_of(report, width).splitlines()
    assert len(lines) <= ROWS
    assert all(width_of(line) <= width for line in lines)
    assert "more: -v shows all" in "\n".join(lines)


def test_the_worst_stands_first_and_names_its_fix() -> None:
    bad = Finding(
        "gpu-lost", Blame.GPU, Severity.FAIL, "n1 GPU 3", "the GPU has fallen off the bus", "reboot, then RMA", ()
    )
    note = Finding("a-note", Blame.HOST, Severity.INFO, "n1", "of no importance", "nothing", ())
    page = screen_of(dataclasses.replace(healthy(), findings=(note, bad)))
    assert page.index("gpu-lost") < page.index("a-note")
    assert "fix: reboot, then RMA" in page and "fix: nothing" not in page


def test_files_that_were_not_written_are_not_named() -> None:
    assert "preflight.env" not in screen_of(REPORTS["nothing_works"])
    assert "preflight.env, preflight-report.json" in screen_of(REPORTS["healthy"])


@pytest.mark.parametrize("name", sorted(REPORTS))
def test_the_verdict_alone_is_one_line(name: str) -> None:
    page = check_page(REPORTS[name]).shown(Detail.VERDICT, Style())
    assert page.count("\n") == 1
    assert page.startswith(("READY", "NOT READY", "UNKNOWN", "SIMULATED", "NODE "))


def test_a_gap_in_which_everything_stood_still_is_on_the_first_screen() -> None:
    gapless, gap = healthy(), ("paused", 41.0)
    report = dataclasses.replace(gapless, durations_s=(*gapless.durations_s, gap))
    shown = [" ".join(screen_of(each).split()) for each in (gapless, report)]
    assert ["the whole run was paused for 41 s" in text for text in shown] == [False, True]


def test_a_run_that_was_stopped_says_so_once_and_asks_for_no_repair() -> None:
    why = "stopped by SIGINT during default at timed 20/24"
    report = dataclasses.replace(REPORTS["unknown"], exit_code=130, headline=f"unknown: {why}", problems=(why,))
    page = " ".join(screen_of(report).split())
    assert page.count(why) == 1
    assert "rerun the same command, because this run was stopped" in page and "repair" not in page


@pytest.mark.parametrize("name", [name for names in SITUATIONS.values() for name in names])
def test_every_situation_is_one_screen_with_an_answer_and_what_comes_next(name: str) -> None:
    lines = (SCREENS / f"{name}.txt").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= ROWS + 2 and max(map(width_of, lines)) <= 80
    answer = next(line for line in lines if not line.startswith(("CPU path", "preflight: ")))
    assert answer.split("  ")[0].isupper()
    assert [line for line in lines if line.startswith("Next ")]


def test_every_page_of_a_verdict_is_one_that_is_looked_at() -> None:
    assert {command.split()[0] for command in SITUATIONS} == COMMANDS.keys() - GIVE_NO_VERDICT
