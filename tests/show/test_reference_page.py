"""docs/reference.md has every word of a verdict, every class of a finding, and a real preflight.env."""

from __future__ import annotations

from preflight.model.finding import Blame
from preflight.show import explain, fleet, probe_page, stuck, verdict
from preflight.show.env_file import render_env
from tests.conftest import PROJECT
from tests.show.outputs import every_report

PAGE = (PROJECT / "docs" / "reference.md").read_text(encoding="utf-8")


def test_every_word_of_a_verdict_is_in_the_table() -> None:
    tables = (verdict.WORDS, verdict.NODE_WORDS, explain.HEAD, stuck.HEAD, probe_page.ANSWERS, fleet.ANSWERS)
    words = {word.upper() for table in tables for word, _ in table.values()}
    words |= {*explain.FOUND.values(), fleet.FAIL[0].upper(), fleet.NOTHING_READ[0].upper()}
    words |= {"SAFE TIMEOUT", "NO SAFE TIMEOUT", "UNKNOWN TIMEOUT", "BASELINE", "WEAK BASELINE"}
    cells = {
        word.strip() for line in PAGE.splitlines() if line.startswith("|") for word in line.split("|")[2].split(",")
    }
    assert words - cells - {"STILL RUNNING, OR CUT"} == set() and "STILL RUNNING, OR CUT" in PAGE


def test_every_class_says_who_acts_on_it() -> None:
    assert [blame for blame in Blame if f"\n| `{blame.value}` | " not in PAGE] == []


def test_the_settings_shown_are_what_is_written() -> None:
    assert f"```sh\n{render_env(every_report()['cured'])}```\n" in PAGE
