"""Results are written whole or not at all, and failures are one line."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from preflight.errors import OutputError, UsageError
from preflight.system.files import check_writable, set_aside, write_atomically
from preflight.system.inputs import read_reports, report_paths


def test_a_file_is_replaced_and_nothing_else_is_left(tmp_path: Path) -> None:
    path = tmp_path / "preflight.env"
    path.write_text("old")
    write_atomically(str(path), "new\udcff\n")
    assert path.read_bytes() == b"new\xff\n"
    assert os.listdir(tmp_path) == ["preflight.env"]


def test_the_mode_is_what_the_umask_leaves(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_atomically(str(tmp_path / "x"), "")
    finally:
        os.umask(before)
    assert (tmp_path / "x").stat().st_mode & 0o777 == 0o640


def test_a_link_stays_and_the_file_behind_it_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there/real").write_text("old")
    (tmp_path / "link").symlink_to("there/real")
    write_atomically(str(tmp_path / "link"), "new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "there/real").read_text() == "new"
    assert os.listdir(tmp_path / "there") == ["real"]


def test_a_fifo_is_written_to_and_not_replaced() -> None:
    write_atomically("/dev/null", "x")
    assert not Path("/dev/null").is_file()


@pytest.mark.parametrize(("name", "why"), [("folder", "is a directory"), ("missing/x", "no such file or directory")])
def test_what_cannot_be_written_is_one_line_and_leaves_nothing(tmp_path: Path, name: str, why: str) -> None:
    (tmp_path / "folder").mkdir()
    path = str(tmp_path / name)
    with pytest.raises(OutputError, match=why) as failure:
        write_atomically(path, "x")
    with pytest.raises(UsageError, match="directory"):
        check_writable(path)
    assert "\n" not in str(failure.value)
    assert path in str(failure.value)
    assert os.listdir(tmp_path) == ["folder"]


def test_checking_leaves_nothing_behind_and_an_old_file_alone(tmp_path: Path) -> None:
    (tmp_path / "old").write_text("old")
    check_writable(str(tmp_path / "old"))
    check_writable(str(tmp_path / "new"))
    assert os.listdir(tmp_path) == ["old"]


def test_an_old_file_is_set_aside_once(tmp_path: Path) -> None:
    path = tmp_path / "preflight.env"
    path.write_text("old")
    assert set_aside(str(path)) == f"{path}.stale"
    assert (tmp_path / "preflight.env.stale").read_text() == "old"
    assert set_aside(str(path)) is None


def test_setting_aside_onto_a_directory_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("old")
    (tmp_path / "x.stale").mkdir()
    with pytest.raises(OutputError, match="could not be renamed"):
        set_aside(str(tmp_path / "x"))
    assert (tmp_path / "x").read_text() == "old"


def test_runs_at_once_in_one_directory_leave_one_whole_file(tmp_path: Path) -> None:
    path = str(tmp_path / "report.json")
    code = (
        "import sys; from preflight.system.files import write_atomically\n"
        "for _ in range(100): write_atomically(sys.argv[1], sys.argv[2] * 50_000)"
    )
    writers = [subprocess.Popen([sys.executable, "-c", code, path, letter]) for letter in "ab"]
    while any(writer.poll() is None for writer in writers):
        found = Path(path).read_text() if os.path.exists(path) else ""
        assert found in ("", "a" * 50_000, "b" * 50_000)
    assert [writer.returncode for writer in writers] == [0, 0]
    assert os.listdir(tmp_path) == ["report.json"]


@pytest.fixture
def tmpfs(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "small"
    folder.mkdir()
    mount = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", folder], capture_output=True, check=False
    )
    if mount.returncode:
        pytest.skip(f"a tmpfs can't be mounted here: {mount.stderr.decode().strip()}")
    yield folder
    subprocess.run(["umount", folder], check=True)


@pytest.mark.integration
def test_a_full_disk_keeps_the_old_file(tmpfs: Path) -> None:
    path = tmpfs / "preflight.env"
    write_atomically(str(path), "old")
    with pytest.raises(OutputError, match="no space left on device"):
        write_atomically(str(path), "x" * 100_000)
    assert path.read_text() == "old"
    assert os.listdir(tmpfs) == ["preflight.env"]


@pytest.mark.integration
def test_a_read_only_directory_is_told_before_the_run(tmpfs: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", tmpfs], check=True)
    with pytest.raises(UsageError, match="read-only file system"):
        check_writable(str(tmpfs / "preflight.env"))
    with pytest.raises(OutputError, match="read-only file system"):
        write_atomically(str(tmpfs / "preflight.env"), "x")


def test_a_report_that_is_a_link_to_what_never_ends_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")  # as /proc/kmsg, which is waited for without end
    os.symlink(tmp_path / "fifo", tmp_path / "kmsg.json")
    assert list(read_reports(report_paths([str(tmp_path)]))) == [(str(tmp_path / "kmsg.json"), None, "no regular file")]
