"""What `preflight stuck` found while a job hung leads the answer of `explain`; any other JSON is refused."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preflight.errors import MalformedInput, UsageError
from preflight.explain.explain_files import explain_paths
from preflight.explain.stuck_answer import StuckAnswer, is_stuck_report, read_stuck
from preflight.model.explanation import Confidence
from preflight.show.json_document import render_json
from preflight.stuck.judge.answer import answer
from tests.stuck.evidence import SAVE, four, process, rank

TIMEOUT = (
    "[rank0]: RuntimeError: [/pytorch/gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 1800000ms for recv "
    "operation to complete\n"
)
WORKING = {
    "schema_version": 1, "verdict": "unknown", "culprits": [],
    "summary": "Not stuck yet: rank 1 on n0 is in evaluation: run (train.py:18, run); it computes in changing lines "
    "(96% of a CPU), and 1 other rank waits. Wait, and rerun in a minute.",
    "places": [{"rank": 0, "works": ""}, {"rank": 1, "works": "computes"}],
    "nodes": [{"taken_at": "2026-11-24T14:50:50Z"}],
}  # fmt: skip
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*WORKING, "what", "rank"]), inner),
    max_leaves=20,
)


def test_what_stuck_found_is_named_and_the_timeout_is_not(tmp_path: Path) -> None:
    (tmp_path / "job.log").write_text(TIMEOUT)
    (tmp_path / "stuck.json").write_text(render_json(answer((four(rank(2, process(102, SAVE))),))))
    first = explain_paths([str(tmp_path)]).causes[0]
    assert (first.cause, first.confidence) == ("found_by_stuck", Confidence.HIGH)
    assert "rank 2 on n0 is writing a checkpoint: torch.save" in first.verdict.replace("Rank", "rank")


def test_a_rank_that_worked_while_others_waited_is_likely_the_cause_of_their_timeout(tmp_path: Path) -> None:
    (tmp_path / "job.log").write_text(TIMEOUT)
    (tmp_path / "stuck.json").write_text(json.dumps(WORKING))
    first = explain_paths([str(tmp_path)]).causes[0]
    assert (first.cause, first.confidence) == ("found_by_stuck", Confidence.MEDIUM)
    assert "at 14:50:50 UTC: Rank 1 on n0 is in evaluation: run (train.py:18, run)" in first.verdict
    assert "compute a timeout with `preflight timeout`" in first.remedy


def test_an_answer_that_names_no_rank_is_left_out() -> None:
    assert read_stuck("x", json.dumps(WORKING | {"summary": "Not known yet."}).encode()) is None
    assert read_stuck("x", b"[]") is None
    with pytest.raises(MalformedInput, match="names no rank"):
        read_stuck("x", b'{"verdict": "stuck", "culprits": [{"what": " "}]}')


@given(st.dictionaries(st.sampled_from([*WORKING]), JSON) | JSON, st.sampled_from(["stuck", "unknown", "x"]))
def test_any_json_is_an_answer_or_none_or_malformed(document: object, verdict: str) -> None:
    if isinstance(document, dict):
        document = {"schema_version": 1, "verdict": verdict} | document
    data = json.dumps(document).encode()
    is_stuck_report(data)
    try:
        found = read_stuck("x", data)
    except UsageError:
        return
    assert found is None or isinstance(found, StuckAnswer)


@given(st.binary(max_size=200))
def test_any_bytes_are_none_or_malformed(data: bytes) -> None:
    with contextlib.suppress(UsageError):
        assert read_stuck("x", data) is None
