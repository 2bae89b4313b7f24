"""What a good answer rests on stands on the page; without a trial that worked, nothing is claimed."""

from __future__ import annotations

from dataclasses import replace

from preflight.model.report import NodeVerdict
from preflight.model.trial import Outcome
from preflight.show.check_page import check_page
from preflight.show.text import Detail, Style
from preflight.show.verdict import covers
from tests.show.golden_reports import healthy, nothing_works

ROW = "Covers   2 ranks, 0.6 s of trials, messages up to 1 MiB, torch 2.13.0+cpu"


def test_ranks_time_size_and_version_are_named() -> None:
    report = healthy()
    assert covers(report) == ROW.partition("   ")[2]
    for detail in (Detail.SCREEN, Detail.ALL):
        assert ROW.partition("   ")[2] in check_page(report).shown(detail, Style(width=80))


def test_the_nccl_that_was_loaded_counts_and_not_the_wheel() -> None:
    trials = tuple(replace(each, nccl="2.28.9") for each in healthy().trials)
    report = replace(healthy(), trials=trials, backend="nccl")
    assert covers(report).endswith("up to 1 MiB, NCCL 2.28.9")


def test_with_accept_it_stands_with_the_verdict_on_the_job() -> None:
    page = check_page(replace(healthy(), node_verdict=NodeVerdict.ACCEPT)).shown(Detail.SCREEN, Style(width=80))
    row = "Job verdict: ready (2 ranks, 0.6 s of trials, messages up to 1 MiB, torch 2.13.0+cpu)"
    assert row in " ".join(page.split())
    assert "Covers" not in page


def test_a_bad_answer_covers_nothing() -> None:
    assert "Covers" not in check_page(nothing_works()).shown(Detail.SCREEN, Style(width=80))
    failed = tuple(replace(each, outcome=Outcome.HANG) for each in healthy().trials)
    assert covers(replace(healthy(), trials=failed)) == ""
