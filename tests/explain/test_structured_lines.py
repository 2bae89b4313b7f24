"""Logs as JSON, a record a line: what shippers and clouds make of a job's output is read as the job wrote it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from preflight.explain.explain_logs import Log, explain
from preflight.explain.structured_lines import plain_lines, text_of
from preflight.model.explanation import Explanation

OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 4.24 GiB."
AT = "2026-11-21T10:00:00.123Z"
SHIPPERS: dict[str, dict[str, Any]] = {
    "docker": {"log": OOM + "\n", "stream": "stderr", "time": AT},
    "journald": {"MESSAGE": OOM, "__REALTIME_TIMESTAMP": "1795255200123000", "PRIORITY": "3"},
    "journald, as bytes": {"MESSAGE": list(OOM.encode()), "__REALTIME_TIMESTAMP": "1795255200123000"},
    "fluent bit": {"date": 1795255200.123, "log": OOM, "kubernetes": {"pod_name": "trainer-3"}},
    "filebeat": {"@timestamp": AT, "message": OOM, "host": {"name": "node-7"}},
    "google cloud": {"textPayload": OOM, "timestamp": AT, "severity": "ERROR"},
    "google cloud, structured": {"jsonPayload": {"message": OOM}, "timestamp": AT},
    "loki": {"line": OOM, "timestamp": AT, "labels": {"pod": "trainer-3"}},
    "splunk": {"result": {"_raw": OOM}, "time": 1795255200123},
    "opentelemetry": {"timeUnixNano": "1795255200123000000", "body": {"stringValue": OOM}},
    "structlog": {"event": OOM, "level": "error", "timestamp": AT},
    "datadog": {"content": {"message": OOM, "timestamp": AT}, "timestamp": AT},
}


def _lines(*records: object) -> bytes:
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


def _explain(data: bytes) -> Explanation:
    return explain([Log("job.json", plain_lines([data]))])


@pytest.mark.parametrize("shipper", SHIPPERS)
def test_the_message_of_each_shipper_is_read_with_its_time_and_line(shipper: str) -> None:
    record = SHIPPERS[shipper]
    step = dict(record)
    step.update({name: "step 1" for name in ("log", "message", "MESSAGE") if name in record})
    first = _explain(_lines(*[step] * 3, record)).causes[0]
    assert first.cause == "cuda_oom_masked"
    if step and any(step[name] == "step 1" for name in step):
        assert first.evidence[0].line == 4
    if shipper != "structlog":
        assert first.evidence[0].time.startswith("10:00:00") or "T10:00:00" in first.evidence[0].text


def test_lines_within_one_message_stay_lines() -> None:
    trace = f'Traceback (most recent call last):\n  File "train.py", line 3, in <module>\n{OOM}\n'
    explanation = _explain(_lines({"message": "start", "time": AT}, {"message": trace, "time": AT}))
    assert explanation.causes[0].cause == "cuda_oom_masked"
    assert explanation.causes[0].evidence[0].line == 2


def test_a_log_of_plain_lines_is_left_as_it_is_even_where_it_prints_some_json() -> None:
    data = b"start\n" + _lines({"message": "x", "time": AT}) + b"step 2\n" * 50
    assert b"".join(plain_lines([data])) == data


def test_objects_that_are_no_records_are_no_log() -> None:
    assert text_of(b'{"message": "a line of a data set"}') is None
    assert text_of(b'{"loss": 0.3, "time": 1}') is None
    assert text_of(b'["message"]') is None


def test_a_list_of_records_a_line_is_read_too() -> None:
    data = b"[\n" + b",\n".join(_lines({"message": OOM, "time": AT}).strip() for _ in range(3)) + b"\n]\n"
    assert _explain(data).causes[0].cause == "cuda_oom_masked"


def test_a_record_that_is_cut_in_the_middle_is_read_as_it_stands() -> None:
    data = _lines(*[{"message": "step", "time": AT}] * 5) + _lines({"message": OOM, "time": AT})[:-20]
    assert _explain(data).causes[0].cause == "cuda_oom_masked"


def test_where_the_pieces_end_does_not_matter() -> None:
    data = _lines(*[{"message": f"step {i}", "time": AT} for i in range(40)])
    whole = b"".join(plain_lines([data]))
    assert whole.count(b"step") == 40
    for size in (1, 7, 100):
        assert b"".join(plain_lines(data[i : i + size] for i in range(0, len(data), size))) == whole


NAMES = st.sampled_from(["message", "MESSAGE", "time", "timestamp", "log", "body", "content", "jsonPayload", "x"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=8,
)


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(NAMES, VALUES, max_size=5) | VALUES)
def test_any_json_is_a_text_or_none(record: object) -> None:
    assert isinstance(text_of(json.dumps(record).encode()), (str, type(None)))


@settings(max_examples=200, deadline=None)
@given(st.lists(st.binary(max_size=60) | st.sampled_from([b"{", b'{"message": "x", "time": 1}\n', b"\n"]), max_size=12))
def test_arbitrary_bytes_become_pieces(pieces: list[bytes]) -> None:
    assert isinstance(b"".join(plain_lines(pieces)), bytes)


def test_a_message_is_looked_for_two_records_deep() -> None:
    inner = {"message": OOM}
    assert text_of(json.dumps({"timestamp": AT, "jsonPayload": {"fields": inner}}).encode()) == f"{AT} {OOM}"
    assert text_of(json.dumps({"timestamp": AT, "jsonPayload": {"fields": {"fields": inner}}}).encode()) is None
