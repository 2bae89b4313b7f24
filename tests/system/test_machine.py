from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from preflight.errors import NotRecorded, UnreadableFact
from preflight.system.machine import Machine, Recorder, Replay, Tree
from tests.sysroot import Link, build


def test_text_comes_without_the_white_space_around_it(tmp_path: Path) -> None:
    assert build(tmp_path, {"proc/x": b"\n a b \n\0"}).text("proc/x") == "a b"


def test_bytes_that_are_not_utf8_stay_visible(tmp_path: Path) -> None:
    assert build(tmp_path, {"proc/x": b"a\xff"}).text("proc/x") == "a\\xff"


def test_a_missing_file_is_named_by_the_machines_own_path(tmp_path: Path) -> None:
    with pytest.raises(UnreadableFact, match=r"^/proc/x: not there$"):
        Tree(tmp_path).text("proc/x")


def test_a_file_that_is_a_directory_says_why_it_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(UnreadableFact, match=r"^/proc: is a directory$"):
        build(tmp_path, {"proc/x": ""}).text("/proc")


def test_a_directory_that_is_not_there_has_no_names(tmp_path: Path) -> None:
    assert Tree(tmp_path).names("sys/class/net") == ()


def test_names_are_sorted_and_visible_whatever_their_bytes(tmp_path: Path) -> None:
    machine = build(tmp_path, {"d/b": "", "d/a": ""})
    (tmp_path / "d" / os.fsdecode(b"c\xff")).touch()
    assert machine.names("d") == ("a", "b", "c\\xff")


def test_a_link_is_given_as_written(tmp_path: Path) -> None:
    machine = build(tmp_path, {"d/driver": Link("../../bus/pci/drivers/nvidia")})
    assert machine.link("d/driver") == "../../bus/pci/drivers/nvidia"
    assert machine.exists("d/driver")


def test_a_tree_answers_no_question_it_was_not_given(tmp_path: Path) -> None:
    with pytest.raises(NotRecorded, match=r"^rlimits: not recorded"):
        Tree(tmp_path).ask("rlimits")


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
