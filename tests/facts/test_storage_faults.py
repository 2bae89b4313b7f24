"""Directories that stall, refuse or are interrupted: there is an answer, and nothing is left."""

from __future__ import annotations

import json
import os
import re
import signal
import stat
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from preflight.facts.storage import measure_storage
from preflight.model.gap import Gap
from preflight.model.storage import StorageSpeed
from tests.storagesim.running import QUICK_S, SPEEDS, assert_nothing_is_left, is_empty, measured, start

pytestmark = pytest.mark.heavy(4)

MIB = 1 << 20


def speeds(speed: StorageSpeed) -> list[float | Gap]:
    return [getattr(speed, name) for name in SPEEDS]


def test_two_runs_at_the_same_time_do_not_meet(place: Path) -> None:
    first = start(place, 2, 1.0)
    second = measure_storage(str(place), 2, 1.0)
    stdout, stderr = first.communicate(timeout=20)
    assert (first.returncode, stderr) == (0, "")
    assert json.loads(stdout.splitlines()[-1])["gaps"] == []
    assert all(isinstance(each, float) for each in speeds(second))
    assert is_empty(place)


@pytest.mark.timing
@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("stall-look", "looking at the directory stood still"),
        ("stall-open", "writing stood still and was given up at its deadline"),
        ("stall-write", "writing stood still and was given up at its deadline"),
        ("stall-fsync", "writing stood still"),
    ],
)
def test_a_directory_that_stalls_is_given_up_at_the_deadline(place: Path, fault: str, says: str) -> None:
    started = time.monotonic()
    found = measured(place, STORAGESIM=fault)
    assert time.monotonic() - started < QUICK_S + 4
    assert says in found["write_one_bytes_per_s"]
    assert all(says in found[name] for name in SPEEDS)
    assert found["file_bytes"] == 0


@pytest.mark.usefixtures("compiler")
def test_a_directory_that_stalls_later_keeps_what_was_measured_before(place: Path) -> None:
    found = measured(place, STORAGESIM="stall-read")
    assert found["write_one_bytes_per_s"] > 0
    assert "reading stood still" in found["read_one_bytes_per_s"]


@pytest.mark.usefixtures("compiler")
def test_a_stall_after_some_blocks_says_how_far_it_came(place: Path) -> None:
    found = measured(place, 1, 6.0, STORAGESIM="stall-write", STORAGESIM_AFTER="1")
    assert re.match(r"writing stood still( after at least 4 MiB)? and was given up", found["write_one_bytes_per_s"])


@pytest.mark.usefixtures("compiler")
def test_data_that_comes_back_changed_gives_no_speed(place: Path) -> None:
    found = measured(place, STORAGESIM="wrong-read")
    assert found["read_one_bytes_per_s"] == "what was read at byte 0 is not what was written there"


@pytest.mark.usefixtures("compiler")
def test_a_quota_is_named(place: Path) -> None:
    found = measured(place, STORAGESIM="quota", STORAGESIM_AFTER="2")
    assert found["write_one_bytes_per_s"] == "writing: disk quota exceeded"
    assert found["write_all_bytes_per_s"] == "not tried: writing: disk quota exceeded"


@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize("fault", ["no-direct", "refuses-direct-writes"])
def test_without_o_direct_the_cache_is_told_to_forget_and_the_record_says_so(place: Path, fault: str) -> None:
    found = measured(place, STORAGESIM=fault)
    assert found["is_direct"] is False
    assert all(found[name] > 0 for name in SPEEDS)


@pytest.mark.usefixtures("compiler")
def test_where_every_file_needs_a_name_none_keeps_it(place: Path) -> None:
    assert all(measured(place, STORAGESIM="no-tmpfile")[name] > 0 for name in SPEEDS)


@pytest.mark.timing
@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize("fault", ["slow", "stall-write", "no-tmpfile"])
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_in_the_middle_ends_it_within_a_second(
    place: Path, fault: str, number: signal.Signals, code: int
) -> None:
    process = start(place, 3, 20.0, STORAGESIM=fault)
    assert process.stdout.readline() == "0.0\n"
    time.sleep(0.5)
    os.killpg(process.pid, number)  # as a terminal does: the writers get it, too
    sent_at = time.monotonic()
    _, stderr = process.communicate(timeout=10)
    assert time.monotonic() - sent_at < 1.5
    assert (process.returncode, stderr) == (code, f"stopped by {number.name}\n")
    assert_nothing_is_left(process, place)


@pytest.mark.usefixtures("compiler")
def test_killing_the_command_takes_writers_and_files_along(place: Path) -> None:
    process = start(place, 2, 20.0, STORAGESIM="slow")
    assert process.stdout.readline() == "0.0\n"
    time.sleep(0.5)
    process.kill()
    process.communicate(timeout=10)
    assert_nothing_is_left(process, place)


def test_a_directory_that_one_may_not_write_to_is_a_gap(need: Callable[[str, bool, str], None]) -> None:
    need("root", os.geteuid() == 0, "only root can become a user that may not write")
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        place.chmod(stat.S_IRUSR | stat.S_IXUSR | stat.S_IROTH | stat.S_IXOTH)
        assert measured(place, uid="65534")["write_one_bytes_per_s"] == "writing: permission denied"
