"""The pages of `check`: exact where they are kept, and inside the terminal whatever the report holds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from preflight.model.finding import Blame, Evidence, Finding, Severity
from preflight.model.trial import Comparison, LeftOut
from preflight.show.check_page import Written, check_page, render_check
from preflight.show.console_writer import lines_of
from preflight.show.document import Text
from preflight.show.probe_page import probe_page
from preflight.show.text import Detail, Style, width_of
from tests.kept import compare
from tests.reports import advice_of, failed_trial, netif_trial, node_facts, report_of
from tests.show.golden_reports import REPORTS, healthy

GOLDEN = Path(__file__).parent.parent / "golden"
HOSTILE = "\x1b[2J\r\x07\u202eevil\u200b\x9b31m\u3000\ud800\n`id`漢字" + "x" * 300


@pytest.mark.parametrize("name", sorted(REPORTS))
def test_the_page_is_the_one_that_is_kept(name: str) -> None:
    compare(GOLDEN / f"{name}.txt", render_check(REPORTS[name](), Style(width=80)))


@pytest.mark.parametrize("name", sorted(REPORTS))
@pytest.mark.parametrize("width", [40, 60, 80, 132])
def test_no_line_of_any_page_is_wider_than_the_terminal(name: str, width: int) -> None:
    assert _widest(render_check(REPORTS[name](), Style(width=width))) <= width


def test_there_is_no_colour_unless_it_is_asked_for() -> None:
    assert "\x1b" not in render_check(REPORTS["warnings"](), Style(colour=False))
    assert "\x1b[1;33mWARN\x1b[0m" in render_check(REPORTS["warnings"](), Style(colour=True))


def test_a_terminal_without_unicode_gets_ascii_of_the_same_shape() -> None:
    page = render_check(REPORTS["nothing_works"](), Style(unicode=False))
    assert page.isascii()
    assert [len(line) for line in page.splitlines()] == [
        len(line) for line in render_check(REPORTS["nothing_works"](), Style()).splitlines()
    ]


def test_the_first_line_says_that_a_run_was_simulated() -> None:
    assert render_check(REPORTS["simulated"](), Style()).startswith("SIMULATED: ")


def test_the_first_line_says_that_no_gpu_was_tried() -> None:
    assert render_check(healthy(), Style()).startswith("CPU path: gloo over 2 ranks")


def test_a_run_of_which_no_trial_was_completed_counts_no_ranks() -> None:
    assert render_check(replace(healthy(), world_size=0), Style()).startswith(
        "CPU path: gloo; no trial was completed; GPUs"
    )


def test_a_command_that_sources_a_path_with_blanks_is_quoted() -> None:
    page = check_page(REPORTS["one_interface_works"](), Written("/tmp/my run/preflight.env")).shown(Detail.ALL, Style())
    assert "source '/tmp/my run/preflight.env'" in page


def test_nothing_from_outside_can_steer_the_terminal() -> None:
    page = _page_with(HOSTILE, Style())
    assert all(char.isprintable() or char == "\n" for char in page)
    assert "\\x1b[2J" in page


@settings(max_examples=60, deadline=None)
@given(text=st.text(max_size=200), width=st.integers(min_value=40, max_value=140))
def test_any_text_from_outside_stays_inside_the_terminal(text: str, width: int) -> None:
    page = _page_with(text, Style(width=width))
    assert all(char.isprintable() or char == "\n" for char in page)
    assert _widest(page) <= width


def test_a_hostile_node_stays_inside_the_terminal_of_probe() -> None:
    names = node_facts().netifs
    assert isinstance(names, tuple)
    page = probe_page(node_facts(host=HOSTILE, nccl_conf=(), netifs=names), (), (), (), 0).shown(Detail.ALL, Style())
    assert "\x1b" not in page
    assert _widest(page) <= 80


def _page_with(text: str, style: Style) -> str:
    finding = Finding(text, Blame.HOST, Severity.FAIL, text, text, text, (Evidence(text, text, text),))
    report = report_of(
        headline=text,
        backend="nccl" + text,
        simulated=True,
        trials=(failed_trial(problem=text), netif_trial(text, median_us=3e9)),
        left_out=(LeftOut(text, text),),
        comparisons=(Comparison(text, 8, 0.1, 0.05, 0.01, wins=True),),
        findings=(finding,),
        problems=(text,),
        advice=advice_of(env=(("NCCL_X", text),), unset=(text,), evidence=(("NCCL_X", text),), reason=text),
        durations_s=((text, 1.0),),
    )
    return check_page(report, Written(text)).shown(Detail.ALL, style)


def _widest(page: str) -> int:
    return max(width_of(line) for line in page.splitlines())


@pytest.mark.parametrize("before", ["word " * 60, "/opt/env/lib/" * 30], ids=["words", "one long path"])
def test_a_cut_keeps_the_part_that_matters(before: str) -> None:
    text = Text(f"{before}undefined symbol: ncclMemFree {'after ' * 60}", 4, label="| ", most_lines=2)
    for width in (60, 80, 120):
        style = Style(width=width)
        whole, cut = (lines_of([each], style) for each in (text, replace(text, shown="undefined symbol: ncclMem")))
        assert "symbol" not in "".join(whole)
        assert len(cut) == 2 and all(len(each) <= width for each in cut)
        assert "undefined symbol: ncclMemFree" in " ".join(each.strip("| ") for each in cut)
        assert cut[0].strip("| ").startswith("…") and cut[-1].endswith("…")
