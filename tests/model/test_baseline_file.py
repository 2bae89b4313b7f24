"""A baseline's file is read back, or refused in one clear line; nothing that it holds can make judging fail."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preflight.errors import MalformedInput
from preflight.fleet.baseline import learn
from preflight.model.baseline import BASELINE_SCHEMA, Point, judge_node
from preflight.model.codec import encode
from preflight.model.collective import Collective
from preflight.model.saved_report import load_baseline
from tests.model.test_codec import ANY_JSON

POINT: Point = (Collective.ALL_REDUCE, 1 << 30)
LEARNT = learn((("GPUs", "8 x H100"),), {f"n{i}": [{POINT: 300.0 + i}, {POINT: 301.0 + i}] for i in range(8)})
DOCUMENT = encode(LEARNT)
FIRST = DOCUMENT["references"][0]


def test_it_comes_back_as_it_was() -> None:
    assert load_baseline(json.dumps(DOCUMENT)) == LEARNT


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"baseline_schema": BASELINE_SCHEMA + 1}, "use the preflight that wrote it"),
        ({"baseline_schema": 0}, "no positive whole number"),
        ({"references": []}, "no references"),
        ({"references": 3}, "expected an array"),
        ({"references": [FIRST | {"busbw_gb_s": 0.0}]}, "a value that nothing can have"),
        ({"references": [FIRST | {"group": "huge"}]}, "a value that nothing can have"),
        ({"references": [FIRST | {"nodes": 1}]}, "a value that nothing can have"),
    ],
)
def test_what_is_no_baseline_is_refused_in_one_line(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(MalformedInput, match=told) as refused:
        load_baseline(json.dumps(DOCUMENT | changes), "golden.json")
    assert str(refused.value).startswith("golden.json: ") and "\n" not in str(refused.value)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"schema_version": 1}', "[" * 100_000])
def test_another_file_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(MalformedInput):
        load_baseline(text)


ANY_VALUE = ANY_JSON | st.integers() | st.floats(0, 1e12)
REFERENCE = st.fixed_dictionaries({}, optional=dict.fromkeys(FIRST, ANY_VALUE))


@given(st.lists(REFERENCE, max_size=3), ANY_JSON)
def test_whatever_it_holds_it_is_refused_or_can_be_judged_by(changes: list[dict[str, Any]], other: Any) -> None:
    references = [FIRST | each for each in changes]
    for document in (DOCUMENT | {"references": references}, DOCUMENT | {"hardware": other}, other):
        try:
            baseline = load_baseline(json.dumps(document))
        except MalformedInput:
            continue
        for judged in judge_node(baseline, [{POINT: 300.0}]):
            assert 0 <= judged.floor <= 1
