"""How much room is taken, and on which file system."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preflight.errors import UnreadableFact
from preflight.facts.storage import MOST_FILE_BYTES, SHARE_OF_FREE, file_size_bytes, measure_storage, parse_file_system
from preflight.model.gap import Gap
from preflight.model.storage import StorageSpeed
from preflight.system.storage_file import BLOCK_BYTES
from tests.netns import remount_read_only
from tests.storagesim.running import SPEEDS, is_empty, start

MIB = 1 << 20


def speeds(speed: StorageSpeed) -> list[float | Gap]:
    return [getattr(speed, name) for name in SPEEDS]


@pytest.mark.integration
def test_a_full_disk_is_too_small_to_measure(tmpfs: Callable[[str], Path]) -> None:
    place = tmpfs("size=16k")
    speed = measure_storage(str(place), 2, 1.0)
    assert all("at most a tenth is used, so that measuring needs 80 MiB" in str(each) for each in speeds(speed)), speed
    assert is_empty(place)


@pytest.mark.integration
def test_a_read_only_directory_is_a_gap(tmpfs: Callable[[str], Path]) -> None:
    place = tmpfs("size=200m")
    remount_read_only(place)
    assert measure_storage(str(place), 2, 1.0).write_one_bytes_per_s == Gap("writing: read-only file system")


@pytest.mark.integration
def test_a_disk_that_others_fill_in_the_middle_is_a_gap(tmpfs: Callable[[str], Path]) -> None:
    place = tmpfs("size=160m")

    def watch(share: float) -> None:
        if share >= 0.5 and not (place / "others").exists():
            (place / "others").write_bytes(b"x" * (150 * MIB))

    speed = measure_storage(str(place), 2, 30.0, watch)  # filling takes what time it takes
    assert isinstance(speed.write_one_bytes_per_s, float)
    assert "no space left on device" in str(speed.write_all_bytes_per_s)
    assert os.listdir(place) == ["others"]


@pytest.mark.integration
def test_at_no_moment_more_than_a_tenth_of_the_free_space_is_used(tmpfs: Callable[[str], Path]) -> None:
    place = tmpfs("size=400m")
    used: list[int] = []
    stop = threading.Event()
    process = start(place, 3, 15.0)

    def sample() -> None:
        while not stop.is_set():
            room = os.statvfs(place)
            used.append((room.f_blocks - room.f_bfree) * room.f_frsize)
            time.sleep(0.002)

    sampler = threading.Thread(target=sample)
    sampler.start()
    stdout, stderr = process.communicate(timeout=40)
    stop.set()
    sampler.join()
    assert (process.returncode, stderr) == (0, "")
    assert 8 * MIB < max(used) <= 40 * MIB
    assert os.statvfs(place).f_blocks == os.statvfs(place).f_bfree
    assert json.loads(stdout.splitlines()[-1])["value"]["file_bytes"] == 12 * MIB


@given(st.integers(0, 1 << 60), st.integers(1, 256))
def test_all_files_together_take_at_most_a_tenth_in_whole_blocks(free_bytes: int, writers: int) -> None:
    size_bytes = file_size_bytes(free_bytes, writers)
    assert size_bytes * writers * SHARE_OF_FREE <= free_bytes
    assert size_bytes % BLOCK_BYTES == 0
    assert 0 <= size_bytes <= MOST_FILE_BYTES


@given(st.integers(0, 1 << 60), st.integers(0, 1 << 60), st.integers(1, 256))
def test_more_room_never_makes_a_smaller_file(free_bytes: int, more_bytes: int, writers: int) -> None:
    assert file_size_bytes(free_bytes + more_bytes, writers) >= file_size_bytes(free_bytes, writers)


MOUNTS = """\
22 1 254:0 / / rw,relatime - ext4 /dev/vda rw
30 22 0:25 / /dev/shm rw - tmpfs tmpfs rw
31 22 0:40 / /mnt/ck\\040pt rw shared:1 - lustre 10.0.0.1@tcp:/lfs rw
32 22 0:41 / /mnt rw - nfs4 nas:/x rw
33 22 0:42 / /mnt rw - fuse.gcsfuse bucket rw
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/", "ext4"),
        ("/dev/shm", "tmpfs"),
        ("/dev/shmx", "ext4"),
        ("/dev/shm/a", "tmpfs"),
        ("/mnt/ck pt/run1", "lustre"),
        ("/mnt/x", "fuse.gcsfuse"),  # the later mount hides the earlier one
    ],
)
def test_the_file_system_is_that_of_the_nearest_mount(path: str, kind: str) -> None:
    assert parse_file_system(MOUNTS, path) == kind


@given(st.text(alphabet="/ -\\0178abc\n", max_size=80), st.text(alphabet="/abc", max_size=10))
def test_any_mountinfo_gives_a_type_or_our_error(text: str, path: str) -> None:
    try:
        assert parse_file_system(text, path)
    except UnreadableFact as error:
        assert "mountinfo" in str(error)
