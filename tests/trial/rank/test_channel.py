"""The control channel: a value is there whole or not at all, and nobody waits longer than told."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from preflight.trial.rank.channel import Channel
from tests.conftest import PROJECT

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
)


@pytest.fixture
def channel(tmp_path: Path) -> Channel:
    return Channel(str(tmp_path))


def test_what_was_put_is_there_at_once_and_comes_back(channel: Channel) -> None:
    assert not channel.has("end/0/1")
    channel.put("end/0/1", {"why": "hang"})
    assert channel.has("end/0/1")
    assert channel.get("end/0/1") == {"why": "hang"}
    assert not channel.has("end/0/10")
    assert not channel.has("end/0")


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(JSON)
def test_every_json_value_comes_back_and_the_last_one_counts(channel: Channel, value: object) -> None:
    channel.put("step/1", "older")
    channel.put("step/1", value)
    assert channel.get("step/1") == value


@pytest.mark.timing
def test_waiting_ends_when_the_time_has_come(channel: Channel) -> None:
    start = time.monotonic()
    assert not channel.wait("step/0", start + 0.05)
    assert 0.05 <= time.monotonic() - start < 1


def test_waiting_for_what_is_there_takes_no_time_even_when_it_is_too_late(channel: Channel) -> None:
    channel.put("step/0", 1)
    assert channel.wait("step/0", time.monotonic() - 10)


def test_nothing_but_the_values_is_left_in_the_directory(channel: Channel) -> None:
    channel.put("step/0", 1)
    channel.put("kill/0", 1)
    assert sorted(os.listdir(channel.directory)) == ["kill.0", "step.0"]


WRITER = """
import sys
from preflight.trial.rank.channel import Channel
channel = Channel(sys.argv[1])
for number in range(200):
    channel.put("end/0/0", [number, "x" * 200_000])
channel.put("end/0/1", "through")
"""


def test_a_reader_never_sees_half_a_value(channel: Channel) -> None:
    seen = set()
    with subprocess.Popen([sys.executable, "-c", WRITER, channel.directory], cwd=PROJECT):
        assert channel.wait("end/0/0", time.monotonic() + 20)
        while not channel.has("end/0/1"):
            number, text = channel.get("end/0/0")  # raises where the text is cut short
            assert len(text) == 200_000
            seen.add(number)
    assert len(seen) > 1
