"""What is measured, what is refused, and that nothing is left, whatever ends it."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from preflight.errors import UsageError
from preflight.facts.storage import measure_storage
from preflight.model.gap import Gap
from preflight.model.storage import StorageSpeed
from preflight.system.storage_file import BLOCK_BYTES
from tests.storagesim.running import QUICK_S, SPEEDS, is_empty

MIB = 1 << 20


def speeds(speed: StorageSpeed) -> list[float | Gap]:
    return [getattr(speed, name) for name in SPEEDS]


def children() -> str:
    return Path(f"/proc/self/task/{os.getpid()}/children").read_text()


@pytest.mark.timing
def test_a_directory_is_measured_by_one_writer_and_by_all_and_nothing_is_left(place: Path) -> None:
    budget_s = 4.0
    before = children()
    shares: list[float] = []
    speed = measure_storage(str(place), 2, budget_s, shares.append)
    assert all(isinstance(each, float) and each > 0 for each in speeds(speed)), speed
    assert (speed.directory, speed.writers) == (os.path.realpath(place), 2)
    assert speed.file_bytes >= BLOCK_BYTES
    assert isinstance(speed.is_direct, bool)
    assert isinstance(speed.file_system, str)
    assert speed.took_s < budget_s + 1.5
    assert (shares[0], shares[-1]) == (0.0, 1.0)
    assert all(0 <= earlier <= later <= 1 for earlier, later in pairwise(shares))
    assert children() == before
    assert is_empty(place)


def test_a_real_disk_is_written_to_and_nothing_is_left(tmp_path: Path) -> None:
    speed = measure_storage(str(tmp_path), 1, 8.0)
    assert isinstance(speed.write_one_bytes_per_s, float)
    assert speed.write_one_bytes_per_s > 0
    assert is_empty(tmp_path)


def test_a_single_writer_is_all_writers(place: Path) -> None:
    speed = measure_storage(str(place), 1, 1.0)
    assert speed.write_one_bytes_per_s == speed.write_all_bytes_per_s
    assert speed.read_one_bytes_per_s == speed.read_all_bytes_per_s


def test_a_symbolic_link_to_a_directory_is_followed_and_the_place_is_named(place: Path) -> None:
    ours, link = place / "ours", place / "link"
    ours.mkdir()
    link.symlink_to(ours)
    assert measure_storage(str(link), 1, 1.0).directory == os.path.realpath(ours)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda path: None, ": not there; make the directory first"),
        (lambda path: path.write_text("x"), ": a file, not a directory"),
        (os.mkfifo, ": a FIFO, not a directory"),
        (lambda path: path.symlink_to("nowhere"), "nowhere, which is not there; make the directory first"),
        (lambda path: path.symlink_to(__file__), "test_storage.py, which is a file, not a directory"),
    ],
    ids=["missing", "file", "fifo", "dangling link", "link to a file"],
)
def test_what_is_no_directory_is_named_and_refused(tmp_path: Path, make: Callable[[Path], object], says: str) -> None:
    path = tmp_path / "ckpt"
    make(path)
    before = path.lstat() if path.is_symlink() or path.exists() else None
    with pytest.raises(UsageError, match=f"^{re.escape(str(path))}: .*") as raised:
        measure_storage(str(path), 2, 1.0)
    assert says in str(raised.value)
    assert "\n" not in str(raised.value)
    if before is not None:
        assert path.lstat().st_mtime == before.st_mtime


@pytest.mark.parametrize("path", ["/dev/null", "a\0b", "", "/proc/self/mem/x"])
def test_odd_paths_are_refused_in_one_line(path: str) -> None:
    with pytest.raises(UsageError):
        measure_storage(path, 1, 1.0)


def test_a_link_that_leads_to_itself_is_a_gap_with_the_systems_words(tmp_path: Path) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    assert "too many levels of symbolic links" in str(measure_storage(str(loop), 1, 1.0).write_one_bytes_per_s)


@pytest.mark.parametrize("writers", [0, -1, 257])
def test_a_senseless_number_of_writers_is_refused(place: Path, writers: int) -> None:
    with pytest.raises(UsageError, match="writers"):
        measure_storage(str(place), writers, 1.0)


def test_a_directory_that_is_removed_in_the_middle_costs_what_came_after(place: Path) -> None:
    ours = place / "ours"
    ours.mkdir()

    def watch(share: float) -> None:
        if share >= 0.5 and ours.exists():
            ours.rmdir()  # possible: no file in it has a name

    speed = measure_storage(str(ours), 2, QUICK_S, watch)
    assert isinstance(speed.write_one_bytes_per_s, float)
    assert str(speed.write_all_bytes_per_s).count("no such file or directory") == 1
    assert "not tried" in str(speed.read_all_bytes_per_s)


def test_a_speed_that_was_measured_while_preflight_itself_stood_still_is_none(place: Path) -> None:
    paused: list[float] = []

    def watch(share: float) -> None:
        if 0 < share < 0.5 and not paused:
            paused.append(share)
            time.sleep(2 * QUICK_S)  # as where a VM is moved, beyond the limit of all steps

    speed = measure_storage(str(place), 1, QUICK_S, watch)
    assert isinstance(speed.write_one_bytes_per_s, Gap)
    assert re.match(r"preflight itself was paused for \d s in that time", speed.write_one_bytes_per_s.reason)
    assert isinstance(speed.read_one_bytes_per_s, Gap)
    assert is_empty(place)


def test_a_writer_that_is_killed_is_named_and_its_file_goes_with_it(place: Path) -> None:
    before = set(children().split())

    def watch(share: float) -> None:
        if 0.5 < share < 0.6:
            for pid in set(children().split()) - before:
                os.kill(int(pid), signal.SIGKILL)

    speed = measure_storage(str(place), 3, QUICK_S, watch)
    assert isinstance(speed.write_one_bytes_per_s, float)
    assert isinstance(speed.write_all_bytes_per_s, Gap)
    assert re.match(r"writer \d of 3: .*died", speed.write_all_bytes_per_s.reason)
    assert set(children().split()) == before
    assert is_empty(place)


def test_an_exception_in_the_middle_leaves_nothing(place: Path) -> None:
    before = children()

    def watch(share: float) -> None:
        if share > 0.3:
            raise RuntimeError("the caller has enough")

    with pytest.raises(RuntimeError, match="enough"):
        measure_storage(str(place), 2, QUICK_S, watch)
    assert children() == before
    assert is_empty(place)
