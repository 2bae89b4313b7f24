"""A saved report comes back as it was; whatever else a file holds is one clear line."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from preflight.errors import MalformedInput
from preflight.model.codec import encode
from preflight.model.facts import Gap
from preflight.model.report import Report
from preflight.model.saved_report import load_report
from preflight.show.formats import Format
from preflight.show.render import render_as
from tests.model.test_codec import ANY_JSON, records
from tests.reports import report_of
from tests.show.outputs import every_report

DOCUMENT = encode(report_of())


def changed(**keys: Any) -> str:
    return json.dumps(DOCUMENT | keys)


@pytest.mark.parametrize("name", every_report())
def test_a_report_comes_back_as_it_was(name: str) -> None:
    report = every_report()[name]
    assert load_report(json.dumps(encode(report))) == report


def test_keys_that_the_record_does_not_know_are_ignored() -> None:
    assert load_report(changed(what_comes={"later": [1]}, gaps=[*DOCUMENT["gaps"], {"fact": "x"}])) == report_of()


def test_a_fact_that_the_document_lacks_is_a_gap_with_a_reason() -> None:
    nodes = [{key: value for key, value in node.items() if key != "hca_ports"} for node in DOCUMENT["nodes"]]
    ports = load_report(changed(nodes=nodes)).nodes[0].hca_ports
    assert isinstance(ports, Gap)
    assert ports.reason == "the document does not say it"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "not JSON: it is empty"),
        ("  \n", "not JSON: it is empty"),
        ("{", "not JSON: Expecting property name"),
        ('{"schema_version": 1', "line 1 column"),
        ("[" * 100_000, "not JSON: nested too deeply"),
        ("1" * 5000, "not JSON: a number is too long"),
        ("[]", "no report: it has no 'schema_version'"),
        ("null", "no report"),
        ('{"verdict": "ready"}', "no report: it has no 'schema_version'"),
        ('{"schema_version": "1"}', "no positive whole number"),
        ('{"schema_version": true}', "no positive whole number"),
        ('{"schema_version": 0}', "no positive whole number"),
        ('{"schema_version": 1}', "the key 'preflight_version' is missing"),
        ('{"schema_version": 1, "nodes": []}', "facts without a verdict"),
        (changed(schema_version=2), "schema_version is 2, and this preflight reads 1: use the preflight that wrote it"),
        (changed(schema_version=10**50), "a larger one"),
        (changed(schema_version=10**9), "a larger one"),
        (changed(schema_version=10**9 - 1), "schema_version is 999999999, and"),
        (changed(verdict="maybe"), "verdict: expected one of ready"),
        (changed(trials=[{}]), "trials[0]: the key 'candidate' is missing"),
        (changed(exit_code="x"), "exit_code: expected a whole number"),
        (changed(durations_s={"probe": "NaN"}), "durations_s.probe: expected a number"),
        (json.dumps(DOCUMENT).replace("2.81", "NaN"), "expected a finite number"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_is_no_report_is_one_line_that_begins_with_the_files_name(text: str, told: str) -> None:
    with pytest.raises(MalformedInput) as raised:
        load_report(text, "r.json")
    assert str(raised.value).startswith("r.json: ")
    assert told in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_key_with_a_line_break_is_shown_in_one_line() -> None:
    with pytest.raises(MalformedInput, match=re.escape(r"a\nb': expected a number")):
        load_report(json.dumps(DOCUMENT | {"durations_s": {"a\nb": {}}}))


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(document=ANY_JSON, key=st.sampled_from([*DOCUMENT, "new"]))
def test_any_json_is_a_report_or_our_error(document: object, key: str) -> None:
    for text in (json.dumps(document), json.dumps(DOCUMENT | {key: document}), json.dumps({key: document})):
        try:
            assert isinstance(load_report(text), Report)
        except MalformedInput as error:
            assert "\n" not in str(error)


@settings(deadline=None)
@given(text=st.text())
def test_any_text_is_a_report_or_our_error(text: str) -> None:
    with pytest.raises(MalformedInput):
        load_report(text)


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(report=records(Report), form=st.sampled_from([form for form in Format if form is not Format.ENV]))
def test_any_report_at_all_can_be_rendered_in_any_form(report: Report, form: Format) -> None:
    assert render_as(form, report)
