from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from preflight.errors import NotRecorded, UnreadableFact
from preflight.system.machine import Machine
from preflight.system.recording import Recorder, Replay
from tests.sysroot import Link, build

READS: tuple[Callable[[Machine], object], ...] = (
    lambda machine: machine.text("a/text"),
    lambda machine: machine.names("a"),
    lambda machine: machine.names("nowhere"),
    lambda machine: machine.link("a/link"),
    lambda machine: machine.exists("a/text"),
    lambda machine: machine.exists("a/nothing"),
    lambda machine: machine.ask("question"),
)


def test_a_replay_answers_every_recorded_read_alike_even_after_a_trip_through_json(tmp_path: Path) -> None:
    recorder = Recorder(build(tmp_path, {"a/text": "x", "a/link": Link("text")}, {"question": {"n": 1}}))
    found = [read(recorder) for read in READS]
    replay = Replay(json.loads(json.dumps(recorder.record)))
    assert [read(replay) for read in READS] == found


def test_a_read_that_failed_fails_again_for_the_same_reason(tmp_path: Path) -> None:
    recorder = Recorder(build(tmp_path, {}))
    with pytest.raises(UnreadableFact) as first:
        recorder.text("proc/x")
    with pytest.raises(UnreadableFact) as again:
        Replay(recorder.record).text("proc/x")
    assert str(again.value) == str(first.value)


@pytest.mark.parametrize("read", READS)
def test_a_read_that_was_not_recorded_says_so(read: Callable[[Machine], object]) -> None:
    with pytest.raises(NotRecorded):
        read(Replay({}))
