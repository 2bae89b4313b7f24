"""A report is read again, and what is no report is refused in one line."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preflight.errors import MalformedInput
from preflight.plan.report_text import parse_report
from preflight.render.json_document import render_json
from tests.reports import report_of


def test_a_written_report_is_read_again() -> None:
    assert parse_report(render_json(report_of()), "r.json") == report_of()


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, "9" * 5000, "null", "[]", "{}", '{"schema_version": 1}'])
def test_what_is_no_report_is_refused_with_its_name(text: str) -> None:
    with pytest.raises(MalformedInput, match=r"^r\.json: not ") as caught:
        parse_report(text, "r.json")
    assert "\n" not in str(caught.value)


@given(st.text(max_size=30), st.data())
def test_a_damaged_report_is_read_or_refused(noise: str, data: st.DataObject) -> None:
    text = json.dumps(json.loads(render_json(report_of())))
    place = data.draw(st.integers(0, len(text)))
    length = data.draw(st.integers(0, 40))
    try:
        parse_report(text[:place] + noise + text[place + length :], "r.json")
    except MalformedInput:
        return
