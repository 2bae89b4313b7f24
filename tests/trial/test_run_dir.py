"""The run's own directory: readable by nobody else, wherever there is room, and what a death left in its logs."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from preflight.system.ownership import KEPT_S
from preflight.trial.run_dir import (
    FOLDERS,
    events_path,
    keep_run_dir,
    last_words,
    lifeline_path,
    make_run_dir,
    remove_run_dir,
    spec_path,
)
from tests.conftest import PROJECT


@pytest.fixture
def run_dir(tmp_path: Path) -> str:
    for folder in FOLDERS:
        (tmp_path / folder).mkdir()
    return str(tmp_path)


def made_with(tmpdir: str) -> Path:
    """Make a run directory in a process of its own: the standard library keeps the temporary folder that it found."""
    return Path(printed_with(tmpdir, "from preflight.trial.run_dir import make_run_dir; print(make_run_dir())"))


def printed_with(tmpdir: str, code: str) -> str:
    environ = os.environ | {"TMPDIR": tmpdir}
    done = subprocess.run([sys.executable, "-c", code], cwd=PROJECT, env=environ, check=True, capture_output=True)
    return done.stdout.decode().strip()


def log(run_dir: str, name: str, text: str, written_at: float) -> None:
    path = Path(run_dir, "torchrun", name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    os.utime(path, (written_at, written_at))


def mode(path: str | Path) -> int:
    return stat.S_IMODE(os.stat(path).st_mode)


def test_the_directory_is_private_has_its_folders_and_a_fifo_and_goes_as_a_whole() -> None:
    before = os.umask(0)
    try:
        path = make_run_dir()
    finally:
        os.umask(before)
    assert mode(path) == 0o700
    assert [mode(os.path.join(path, folder)) for folder in FOLDERS] == [0o700] * len(FOLDERS)
    assert mode(events_path(path)) == 0o600
    assert stat.S_ISFIFO(os.stat(events_path(path)).st_mode)
    assert os.path.dirname(spec_path(path)) == path
    remove_run_dir(path)
    assert not os.path.exists(path)
    remove_run_dir(path)  # a second time is no error


def test_two_runs_never_share_a_directory(tmp_path: Path) -> None:
    one, other = made_with(str(tmp_path)), made_with(str(tmp_path))
    assert one != other
    assert {one.parent, other.parent} == {tmp_path}


@pytest.mark.parametrize("tmpdir", ["/nonexistent/folder", "/proc", "/dev/null"])
def test_a_tmpdir_that_takes_nothing_is_no_reason_to_stop(tmpdir: str) -> None:
    path = made_with(tmpdir)
    assert mode(path) == 0o700
    assert not str(path).startswith(tmpdir)
    remove_run_dir(str(path))


def test_the_last_words_are_the_error_and_not_what_torchrun_says_about_it(run_dir: str) -> None:
    log(run_dir, "0/stderr.log", "Traceback (most recent call last):\nImportError: libcudart.so.12: not found\n", 1000)
    log(
        run_dir, "agent.log", "W0612 10:00:00.1 7 api.py] Error: closing\nE0612 10:00:00.2 7 api.py] ChildError\n", 2000
    )
    assert last_words(run_dir) == "ImportError: libcudart.so.12: not found"


def test_the_last_of_several_errors_counts(run_dir: str) -> None:
    log(run_dir, "0/stderr.log", "ValueError: first\nRuntimeError: second\nbye\n", 1000)
    assert last_words(run_dir) == "RuntimeError: second"
    log(run_dir, "1/stderr.log", "OSError: third\n", 2000)
    assert last_words(run_dir) == "OSError: third"


def test_a_message_that_begins_on_the_next_line_is_told(run_dir: str) -> None:
    log(run_dir, "agent.log", "ValueError: \nInvalid log settings: garbage, must be a list\nof names\n", 1000)
    assert last_words(run_dir) == "ValueError: Invalid log settings: garbage, must be a list"


def test_a_death_without_the_word_error_leaves_its_last_line(run_dir: str) -> None:
    log(run_dir, "0/stderr.log", "starting\nIllegal instruction (core dumped)\n\n", 1000)
    log(run_dir, "agent.log", "E0612 10:00:00.2 7 api.py] failed (exitcode: -4)\n", 2000)
    assert last_words(run_dir) == "Illegal instruction (core dumped)"


def test_what_torchrun_says_is_better_than_nothing(run_dir: str) -> None:
    log(run_dir, "agent.log", "E0612 10:00:00.2 7 api.py] failed (exitcode: -4)\n", 2000)
    assert "exitcode: -4" in last_words(run_dir)


def test_without_logs_there_are_no_words(run_dir: str) -> None:
    assert last_words(run_dir) == ""
    assert last_words("/nonexistent") == ""


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=2000))
def test_any_bytes_give_one_line_of_bounded_length(run_dir: str, data: bytes) -> None:
    Path(run_dir, "torchrun", "stderr.log").write_bytes(data)
    words = last_words(run_dir)
    assert len(words) <= 300
    assert len(words.splitlines()) <= 1


def test_a_folder_whose_name_torch_can_not_take_is_passed_over(tmp_path: Path) -> None:
    odd = os.fsencode(tmp_path) + b"/a\xffb"
    os.mkdir(odd)
    made = made_with(os.fsdecode(odd))
    assert not os.fsencode(made).startswith(odd)
    remove_run_dir(str(made))


def test_a_folder_whose_files_can_not_be_locked_is_passed_over(tmp_path: Path) -> None:
    code = (
        "import errno, fcntl, os, sys\n"
        "def refuse(file, operation):\n"
        "    if os.readlink(f'/proc/self/fd/{file.fileno()}').startswith(sys.argv[1]):\n"
        "        raise OSError(errno.ENOTSUP, 'Operation not supported')\n"
        "fcntl.flock = refuse\n"
        "from preflight.trial.run_dir import make_run_dir; print(make_run_dir())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], cwd=PROJECT, env=os.environ | {"TMPDIR": str(tmp_path)},
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    made = done.stdout.strip()
    assert made and not made.startswith(str(tmp_path))
    assert list(tmp_path.iterdir()) == []
    remove_run_dir(made)


def test_what_failed_runs_left_a_week_ago_goes_and_nothing_else(tmp_path: Path) -> None:
    names = ("failed", "recent", "kept", "running")
    failed, recent, kept, running = (Path(made_with(str(tmp_path))).rename(tmp_path / f"preflight-{n}") for n in names)
    users, link = tmp_path / "preflight-notes", tmp_path / "preflight-link"
    users.mkdir()
    link.symlink_to(failed)
    keep_run_dir(str(kept))
    long_ago = time.time() - KEPT_S - 60
    lifeline = os.open(lifeline_path(str(running)), os.O_RDWR | os.O_NONBLOCK)  # as its launcher holds it
    for path in (failed, kept, running, users):
        os.utime(path, (long_ago, long_ago))
    printed_with(str(tmp_path), "from preflight.trial.run_dir import remove_old_run_dirs; remove_old_run_dirs()")
    os.close(lifeline)
    assert sorted(tmp_path.iterdir()) == sorted([recent, kept, running, users, link])
