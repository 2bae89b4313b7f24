"""A full disk, a read-only directory, two runs in one directory: one clear line, whole files, the older .env kept."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.command import Command, Ran
from tests.netns import can_mount, mounted_tmpfs, remount_read_only

pytestmark = pytest.mark.timing

OLD_ENV = "# from an earlier run\n"
ROOMY = "size=64m"


@pytest.fixture
def mount(need: Callable[[str, bool, str], None], tmp_path: Path) -> Iterator[Callable[[str, str], Path]]:
    """Return a function that mounts a tmpfs below tmp_path; all are unmounted afterwards."""
    need("mount", can_mount(), "file systems can be mounted only by root")
    opened = []

    def mount_it(name: str, options: str) -> Path:
        mounted = mounted_tmpfs(tmp_path / name, options)
        opened.append(mounted)
        return mounted.__enter__()

    yield mount_it
    for mounted in opened:
        mounted.__exit__(None, None, None)


def assert_one_line(ran: Ran, code: int, words: str) -> None:
    assert ran.code == code, ran.stdout + ran.stderr
    assert ran.stderr.count("\n") == 1, ran.stderr
    assert words in ran.stderr
    assert "Traceback" not in ran.stdout + ran.stderr


@pytest.mark.integration
def test_a_full_disk_is_one_line_and_leaves_the_older_env(command: Command, mount: Callable[[str, str], Path]) -> None:
    cwd = mount("cwd", "size=16k")
    (cwd / "preflight.env").write_text(OLD_ENV)
    ran = command.run("check", "--nproc", "2")
    assert_one_line(ran, 3, "preflight: preflight-report.json: could not be written: no space left on device")
    assert (cwd / "preflight.env").read_text() == OLD_ENV
    assert os.listdir(cwd) == ["preflight.env"], "nothing half-written is left"
    assert ran.stdout.splitlines()[1].startswith("UNKNOWN  preflight-report.json: could not be written"), ran.stdout
    assert "else: ready: 2 ranks" in " ".join(ran.stdout.split()), "what was learnt is told nevertheless"


@pytest.mark.integration
def test_a_read_only_directory_is_refused_before_anything_runs(
    command: Command, mount: Callable[[str, str], Path]
) -> None:
    cwd = mount("cwd", ROOMY)
    (cwd / "preflight.env").write_text(OLD_ENV)
    remount_read_only(cwd)
    ran = command.run("check", "--nproc", "2")
    assert_one_line(ran, 2, "preflight: preflight.env: can't be written: read-only file system")
    assert (cwd / "preflight.env").read_text() == OLD_ENV
    assert os.listdir(cwd) == ["preflight.env"]
    assert ran.took_s < 5


@pytest.mark.integration
@pytest.mark.parametrize("fault", ["full", "few_inodes", "read_only"])
def test_a_temporary_directory_that_takes_nothing_is_passed_over(
    command: Command, mount: Callable[[str, str], Path], fault: str
) -> None:
    options = {"full": "size=64k", "few_inodes": "size=64m,nr_inodes=20", "read_only": ROOMY}[fault]
    temporary = mount("tmp", options)
    if fault == "read_only":
        remount_read_only(temporary)
    ran = command.run("check", "--nproc", "2")
    assert ran.code == 0, ran.stdout + ran.stderr
    assert ran.stderr == ""
    assert os.listdir(temporary) == []


@pytest.mark.integration
def test_a_disk_that_fills_up_during_the_run_is_named(command: Command, mount: Callable[[str, str], Path]) -> None:
    temporary = mount("tmp", ROOMY)
    (command.cwd / "preflight.env").write_text(OLD_ENV)
    process = command.start(
        "check", "--backend", "simnccl@simnccl", "--nproc", "2", "--stage-limit", "3",
        env={"SIMNCCL": "hang:stage=timed"},
    )  # fmt: skip
    until = time.monotonic() + 60
    while not list(temporary.glob("preflight-*/logs/*")):
        assert time.monotonic() < until
        time.sleep(0.02)
    time.sleep(0.5)
    fill(temporary / "filler")
    stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == 3, stdout + stderr
    assert "No space left on device" in " ".join(stdout.split())
    assert "Traceback" not in stdout + stderr
    assert (command.cwd / "preflight.env.stale").read_text() == OLD_ENV
    assert not (command.cwd / "preflight.env").exists()


def fill(path: Path) -> None:
    """Write until the disk is full."""
    with open(path, "wb", buffering=0) as file:
        try:
            while file.write(b"x" * 4096):
                pass
        except OSError:
            return


def test_two_runs_in_one_directory_leave_whole_files(command: Command) -> None:
    processes = [command.start("check", "--nproc", "2") for _ in range(2)]
    for process in processes:
        stdout, stderr = process.communicate(timeout=100)
        assert process.returncode == 0, stdout + stderr
        assert stderr == ""
    ran = Ran(0, "", "", 0.0, command.cwd)
    assert ran.report["verdict"] == "ready"
    lines = (command.cwd / "preflight.env").read_text().splitlines()
    assert lines[0].startswith("# Written by preflight")
    assert all(line.startswith(("#", "export PREFLIGHT_", "export DEEPSPEED_TIMEOUT=")) for line in lines if line)
    assert sorted(os.listdir(command.cwd)) == ["preflight-report.json", "preflight.env"]
    assert command.run_dirs == []


def test_a_failed_run_keeps_its_directory_to_itself_and_names_it(command: Command) -> None:
    ran = command.simulate("crash:rank=1,stage=first", ranks=2)
    assert ran.code == 1
    (run_dir,) = command.run_dirs
    assert f"the logs of this run are kept in {run_dir}\n" in ran.stderr
    assert stat.S_IMODE(run_dir.stat().st_mode) == 0o700
    folders = [path for path in run_dir.rglob("*") if path.is_dir()]
    assert {path.name for path in folders} >= {"control", "logs", "stores", "torchrun"}


@pytest.mark.integration
def test_keep_keeps_the_directory_of_a_run_that_succeeds(command: Command) -> None:
    ran = command.run("check", "--nproc", "2", "--keep")
    assert ran.code == 0
    (run_dir,) = command.run_dirs
    assert ran.stderr == f"preflight: the logs of this run are kept in {run_dir}\n"
    assert stat.S_IMODE(run_dir.stat().st_mode) == 0o700
    for folder in ("control", "logs", "nccl", "stores", "torchrun"):
        assert stat.S_IMODE((run_dir / folder).stat().st_mode) == 0o700
