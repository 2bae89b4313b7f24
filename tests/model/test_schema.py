"""The published schema: valid itself, and neither laxer nor stricter than what the codec writes and reads."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings

from preflight.model.codec import encode
from preflight.model.report import Report
from preflight.model.schema import report_schema
from tests.model.test_codec import records
from tests.reports import report_of

SCHEMA = report_schema()
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)
RELEASED = sorted((Path(__file__).parent / "reports").glob("schema_*.json"))


def test_it_is_a_schema_of_2020_12() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    assert SCHEMA["$schema"].endswith("2020-12/schema")


def test_every_definition_says_what_it_is() -> None:
    assert all(each["description"] for each in SCHEMA["$defs"].values())


@settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck))
@given(report=records(Report))
def test_any_report_that_can_be_written_is_valid(report: Report) -> None:
    document = json.loads(json.dumps(encode(report))) | {"schema_version": 1}
    assert list(VALIDATOR.iter_errors(document)) == []


@pytest.mark.parametrize("change", [
    {"verdict": "maybe"}, {"exit_code": "0"}, {"nodes": {}}, {"trials": [{}]}, {"durations_s": []}, {"gaps": [{}]},
    {"findings": [{"check": 1}]}, {"schema_version": 0},
])  # fmt: skip
def test_what_the_codec_would_refuse_is_not_valid(change: dict[str, object]) -> None:
    assert not VALIDATOR.is_valid(json.loads(json.dumps(encode(report_of()))) | change)


def test_a_report_without_one_of_its_first_keys_is_not_valid() -> None:
    document = encode(report_of())
    for key in ("verdict", "exit_code", "nodes", "advice"):
        assert not VALIDATOR.is_valid({name: value for name, value in document.items() if name != key})
