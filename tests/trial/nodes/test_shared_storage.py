"""The directory that everyone writes to, with real files: shared, not shared, stale, read-only."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from preflight.model.gap import Gap
from preflight.model.storage import SharedStorage
from preflight.trial.nodes import storage_probe
from preflight.trial.nodes.queries import Query, Reply
from preflight.trial.nodes.shared_storage import ask_storage
from tests.netns import can_mount, mounted_tmpfs, remount_read_only

HOSTS = {0: "n0", 1: "n1"}
PROBES = {"write": storage_probe.write, "read": storage_probe.read, "sweep": storage_probe.sweep}


def store(
    place: Callable[[int], Path], after: Callable[[str, int], None] = lambda _what, _count: None
) -> SharedStorage:
    """Run the questions with each node's directory at its `place`; `after` is called after each round."""
    written: dict[int, set[str]] = {rank: set() for rank in HOSTS}
    steps, counts = ask_storage(HOSTS, "run", "/ckpt"), {"write": 0, "read": 0, "sweep": 0}

    def answer(rank: int, asked: Query) -> Reply:
        question: dict[str, Any] = {**asked.questions[rank], "directory": str(place(rank))}
        if "size_bytes" in question:
            question["size_bytes"] = min(question["size_bytes"], 8 << 20)
        if "appear_s" in question:
            question["appear_s"] = 0.2
        return Reply(PROBES[asked.what](question, written[rank]))

    asked = next(steps)
    while True:
        answers = {rank: answer(rank, asked) for rank in asked.questions}
        counts[asked.what] += 1
        after(asked.what, counts[asked.what])
        try:
            asked = steps.send(answers)
        except StopIteration as end:
            found = end.value
            assert isinstance(found, SharedStorage)
            return found


def test_a_shared_directory_is_measured_and_left_empty(tmp_path: Path) -> None:
    found = store(lambda _: tmp_path)
    for node in found.nodes:
        assert (node.write_problem, node.read_problem, node.is_missing, node.is_stale) == ("", "", False, False)
        assert not isinstance(node.write_gb_s, Gap)
        assert not isinstance(node.read_gb_s, Gap)
    assert found.file_bytes == 8 << 20
    assert not isinstance(found.write_together_gb_s, Gap)
    assert list(tmp_path.iterdir()) == []


def test_a_directory_of_the_same_name_that_is_not_shared_misses_the_others_file(tmp_path: Path) -> None:
    for rank in HOSTS:
        (tmp_path / str(rank)).mkdir()
    found = store(lambda rank: tmp_path / str(rank))
    assert all(node.is_missing and not node.write_problem for node in found.nodes)


def test_a_cache_that_still_shows_the_first_file_is_stale(tmp_path: Path) -> None:
    real, cached = tmp_path / "real", tmp_path / "cached"
    real.mkdir()

    def after(what: str, count: int) -> None:
        if what == "write" and count == 1:
            shutil.copytree(real, cached)

    # Node 1 reads what was there after the first round; both write into the real one.
    def place(rank: int) -> Path:
        return cached if rank and cached.exists() and reading["now"] else real

    reading = {"now": False}

    def turn(what: str, count: int) -> None:
        after(what, count)
        reading["now"] = what == "write"

    found = store(place, turn)
    assert [node.is_stale for node in found.nodes] == [False, True]
    assert "what was there before" in found.nodes[1].read_problem


def test_one_node_that_has_it_read_only_is_told_from_one_that_lacks_it(
    tmp_path: Path, need: Callable[[str, bool, str], None]
) -> None:
    need("mount", can_mount(), "mounting needs root")
    with mounted_tmpfs(tmp_path / "ro", "size=512m") as read_only:
        remount_read_only(read_only)
        (tmp_path / "rw").mkdir()
        found = store(lambda rank: read_only if rank else tmp_path / "rw")
    assert [node.is_read_only for node in found.nodes] == [False, True]
    assert "read-only" in found.nodes[1].write_problem


def test_no_room_is_said(tmp_path: Path, need: Callable[[str, bool, str], None]) -> None:
    need("mount", can_mount(), "mounting needs root")
    with mounted_tmpfs(tmp_path / "small", "size=16m") as small:
        found = store(lambda _: small)
    assert all("no room" in node.write_problem for node in found.nodes)


def test_without_the_option_nothing_is_asked() -> None:
    with pytest.raises(StopIteration) as end:
        next(ask_storage(HOSTS, "run", ""))
    assert isinstance(end.value.value, Gap)
