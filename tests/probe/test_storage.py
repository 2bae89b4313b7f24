"""What a checkpoint directory can do to its measurement: whatever it does, there is an answer, and nothing is left."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preflight.errors import UnreadableFact, UsageError
from preflight.model.gap import Gap
from preflight.model.storage import StorageSpeed
from preflight.probe.storage import (
    MOST_FILE_BYTES,
    SHARE_OF_FREE,
    file_size_bytes,
    measure_storage,
    parse_file_system,
)
from preflight.system.storage_file import BLOCK_BYTES
from tests.netns import can_mount, mounted_tmpfs, remount_read_only
from tests.storagesim import library

MEASURE = Path(__file__).resolve().parent.parent / "storagesim" / "measure.py"
PROJECT = MEASURE.parent.parent.parent
QUICK_S = 2.0
SPEEDS = ("write_one_bytes_per_s", "write_all_bytes_per_s", "read_one_bytes_per_s", "read_all_bytes_per_s")
MIB = 1 << 20


def speeds(speed: StorageSpeed) -> list[float | Gap]:
    return [getattr(speed, name) for name in SPEEDS]


def children() -> str:
    return Path(f"/proc/self/task/{os.getpid()}/children").read_text()


def is_empty(directory: Path) -> bool:
    return os.listdir(directory) == []


def start(directory: Path, writers: int = 2, budget_s: float = QUICK_S, uid: str = "", **fault: str) -> Any:
    """Start the measurement in a process of its own, on a directory with this fault."""
    environ = {**os.environ, "PYTHONPATH": str(PROJECT), **fault}
    if fault:
        environ["LD_PRELOAD"] = str(library())
    argv = [sys.executable, str(MEASURE), str(directory), str(writers), str(budget_s), *([uid] if uid else [])]
    return subprocess.Popen(
        argv, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )


def measured(directory: Path, *arguments: Any, **fault: Any) -> dict[str, Any]:
    """Return what such a process measured; it must end well."""
    process = start(directory, *arguments, **fault)
    stdout, stderr = process.communicate(timeout=30)
    assert (process.returncode, stderr) == (0, "")
    assert_nothing_is_left(process, directory)
    document = json.loads(stdout.splitlines()[-1])
    reasons = {gap["fact"].removeprefix("value."): gap["reason"] for gap in document["gaps"]}
    return {name: reasons.get(name, value) for name, value in document["value"].items()}


def left_of(process: Any) -> list[str]:
    """Return the living processes of the session that the process led."""
    left = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            fields = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if fields[3] == str(process.pid) and fields[0] not in "ZX":
            left.append(entry)
    return left


def assert_nothing_is_left(process: Any, directory: Path) -> None:
    until = time.monotonic() + 5  # a killed process goes only when the disk has flushed what it waited for
    while left_of(process) and time.monotonic() < until:
        time.sleep(0.02)
    assert left_of(process) == []
    assert is_empty(directory)


@pytest.fixture
def place() -> Iterator[Path]:
    """Return an empty directory in memory: a loaded machine's disk takes what time it likes to flush."""
    in_memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="preflight-test-", dir=in_memory) as folder:
        yield Path(folder)


@pytest.fixture
def tmpfs(need: Callable[[str, bool, str], None], tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    """Return a function that mounts a tmpfs with these options; it is unmounted afterwards."""
    need("mount", can_mount(), "file systems can be mounted only by root")
    with ExitStack() as stack:
        yield lambda options: stack.enter_context(mounted_tmpfs(tmp_path / "mounted", options))


@pytest.fixture
def compiler(need: Callable[[str, bool, str], None]) -> None:
    need("gcc", shutil.which("gcc") is not None, "the stand-in for a bad directory is written in C: install gcc")


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


def test_two_runs_at_the_same_time_do_not_meet(place: Path) -> None:
    first = start(place, 2, 1.0)
    second = measure_storage(str(place), 2, 1.0)
    stdout, stderr = first.communicate(timeout=20)
    assert (first.returncode, stderr) == (0, "")
    assert json.loads(stdout.splitlines()[-1])["gaps"] == []
    assert all(isinstance(each, float) for each in speeds(second))
    assert is_empty(place)


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
    seen = measured(place, STORAGESIM=fault)
    assert time.monotonic() - started < QUICK_S + 4
    assert says in seen["write_one_bytes_per_s"]
    assert all(says in seen[name] for name in SPEEDS)
    assert seen["file_bytes"] == 0


@pytest.mark.usefixtures("compiler")
def test_a_directory_that_stalls_later_keeps_what_was_measured_before(place: Path) -> None:
    seen = measured(place, STORAGESIM="stall-read")
    assert seen["write_one_bytes_per_s"] > 0
    assert "reading stood still" in seen["read_one_bytes_per_s"]


@pytest.mark.usefixtures("compiler")
def test_a_stall_after_some_blocks_says_how_far_it_came(place: Path) -> None:
    seen = measured(place, STORAGESIM="stall-write", STORAGESIM_AFTER="3")
    assert re.match(
        r"writing stood still( after at least (4|8|12) MiB)? and was given up", seen["write_one_bytes_per_s"]
    )


@pytest.mark.usefixtures("compiler")
def test_a_quota_is_named(place: Path) -> None:
    seen = measured(place, STORAGESIM="quota", STORAGESIM_AFTER="2")
    assert seen["write_one_bytes_per_s"] == "writing: disk quota exceeded"
    assert seen["write_all_bytes_per_s"] == "not tried: writing: disk quota exceeded"


@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize("fault", ["no-direct", "refuses-direct-writes"])
def test_without_o_direct_the_cache_is_told_to_forget_and_the_record_says_so(place: Path, fault: str) -> None:
    seen = measured(place, STORAGESIM=fault)
    assert seen["is_direct"] is False
    assert all(seen[name] > 0 for name in SPEEDS)


@pytest.mark.usefixtures("compiler")
def test_where_every_file_needs_a_name_none_keeps_it(place: Path) -> None:
    assert all(measured(place, STORAGESIM="no-tmpfile")[name] > 0 for name in SPEEDS)


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

    speed = measure_storage(str(place), 2, QUICK_S, watch)
    assert isinstance(speed.write_one_bytes_per_s, float)
    assert "no space left on device" in str(speed.write_all_bytes_per_s)
    assert os.listdir(place) == ["others"]


@pytest.mark.integration
def test_at_no_moment_more_than_a_tenth_of_the_free_space_is_used(tmpfs: Callable[[str], Path]) -> None:
    place = tmpfs("size=400m")
    used: list[int] = []
    stop = threading.Event()
    process = start(place, 3, 3.0)

    def sample() -> None:
        while not stop.is_set():
            room = os.statvfs(place)
            used.append((room.f_blocks - room.f_bfree) * room.f_frsize)
            time.sleep(0.002)

    sampler = threading.Thread(target=sample)
    sampler.start()
    stdout, stderr = process.communicate(timeout=20)
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
