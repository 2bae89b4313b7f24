"""The JSON documents and nccl-tests' table."""

from __future__ import annotations

import dataclasses
import json

import pytest

from preflight.model.codec import decode
from preflight.model.collective import Collective
from preflight.model.finding import Blame, SkippedCheck
from preflight.model.report import Report
from preflight.model.trial import without_speeds
from preflight.show.bench import bench_page
from preflight.show.check_page import render_check
from preflight.show.json_document import render_json
from preflight.show.probe_json import render_probe_json
from preflight.show.text import Detail, Style
from tests.reports import node_facts, report_of, timed, trial_result
from tests.show.golden_reports import MEMLOCK, REPORTS


@pytest.mark.parametrize("name", sorted(REPORTS))
def test_a_report_comes_back_from_its_document(name: str) -> None:
    report = REPORTS[name]()
    assert decode(Report, json.loads(render_json(report))) == report


def test_a_document_is_ascii_and_ends_with_one_line_end() -> None:
    text = render_json(report_of(headline="é\ud800"))
    assert text.isascii()
    assert text.endswith("}\n")


def test_a_number_that_json_does_not_know_is_refused() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        render_json(report_of(durations_s=(("probe", float("nan")),)))


def test_the_probe_document_names_its_gaps_twice() -> None:
    skipped = SkippedCheck("memlock", Blame.HOST, "no limits", crashed=False)
    document = json.loads(render_probe_json(node_facts(), (MEMLOCK,), (skipped,), ()))
    assert {"fact": "nodes[0].gpus", "reason": "libnvidia-ml.so.1: not there"} in document["gaps"]
    assert {"fact": "gpus", "reason": "libnvidia-ml.so.1: not there"} in document["nodes"][0]["gaps"]
    assert document["findings"][0]["class"] == "host"
    assert document["skipped_checks"][0]["reason"] == "no limits"


def test_the_table_has_the_columns_of_nccl_tests() -> None:
    lines = bench_page(report_of()).shown(Detail.ALL, Style()).splitlines()
    header = next(line for line in lines if "busbw" in line)
    assert header.split() == ["#", "size", "count", "type", "redop", "root", "time", "algbw", "busbw", "#wrong"]
    rows = [line.split() for line in lines if not line.startswith("#")]
    assert rows[1] == ["1048576", "262144", "float", "sum", "-1", "800.0", "1.31", "1.31", "0"]
    assert rows[3][:5] == ["1048576", "131072", "float", "none", "-1"]
    assert lines[-1] == "# Out of bounds values : 0 OK"
    assert not any("Avg" in line for line in lines)


def test_wrong_elements_fail_the_table() -> None:
    wrong = dataclasses.replace(timed(Collective.BROADCAST, verified=False), wrong_elements=3)
    text = bench_page(report_of(trials=(trial_result(results=(wrong,)),))).shown(Detail.ALL, Style())
    assert text.endswith("# Out of bounds values : 3 FAILED\n")
    assert " none     0 " in text


def test_a_table_without_a_trial_says_so() -> None:
    assert bench_page(report_of(trials=())).shown(Detail.ALL, Style()).endswith("# no trial ran\n")


def test_a_trial_beside_another_job_is_shown_without_speeds() -> None:
    report = report_of(trials=(without_speeds(trial_result(), "GPU 0 was in use"),))
    document = json.loads(render_json(report))
    assert document["trials"][0]["results"][0]["busbw_gb_s"] is None
    assert {"fact": "trials[0].results[0].busbw_gb_s", "reason": "GPU 0 was in use"} in document["gaps"]
    assert "N/A" in bench_page(report).shown(Detail.ALL, Style())
    assert "?" in render_check(report, Style())
