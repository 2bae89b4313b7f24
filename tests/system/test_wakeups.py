from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preflight.system.wakeups import EVENT, IN_Q_OVERFLOW, DirectoryWatch, parse_events


def event(name: str, mask: int = 0x80) -> bytes:
    padded = os.fsencode(name) + b"\0" * (16 - len(os.fsencode(name)) % 16)
    return EVENT.pack(1, mask, 0, len(padded)) + padded


def test_the_names_that_appeared_are_told_once_and_in_order(tmp_path: Path) -> None:
    watch = DirectoryWatch(str(tmp_path))
    if not watch.fds:
        pytest.skip("the kernel has no inotify watch to spare")
    for name in ("b", "a"):
        (tmp_path / name).touch()
    os.rename(tmp_path / "a", tmp_path / "c")
    assert watch.drain() == ["b", "a", "c"]
    assert watch.drain() == []
    watch.close()


def test_without_a_watch_the_directory_has_to_be_read(tmp_path: Path) -> None:
    watch = DirectoryWatch(str(tmp_path / "not there"))
    assert (watch.fds, watch.drain()) == ((), None)


def test_events_that_the_kernel_dropped_mean_reading_the_directory() -> None:
    assert parse_events(event("step.1") + EVENT.pack(-1, IN_Q_OVERFLOW, 0, 0)) is None


@given(st.lists(st.text(st.characters(codec="ascii", exclude_characters="\0/"), min_size=1, max_size=40)))
def test_any_names_are_read_back(names: list[str]) -> None:
    assert parse_events(b"".join(map(event, names))) == names


def test_the_record_has_the_size_that_the_kernel_writes() -> None:
    assert EVENT.size == struct.calcsize("iIII") == 16
