"""Whatever processes call themselves, carry, or do meanwhile: an answer in time, and nothing leaks or harms."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.stuck.hanging_jobs import PROJECT, look

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

MANY = 500
MOST_CPU_S = 20.0
EVIL = "\x1b]0;owned\x07\x1b[2J\u202e"
SECRET = "s3cr3t-never-shown"
# Forks ranks that sleep; each has its variables in its environment, as exec leaves them there.
STAND_INS = f"""
import os, signal, sys, time
count, ending = int(sys.argv[1]), int(sys.argv[2])
script = "import os, signal, time; signal.signal(signal.SIGTERM, signal.SIG_DFL); time.sleep(600)"
pids = []
for rank in range(count):
    environ = {{"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(count), "LOCAL_WORLD_SIZE": str(count),
               "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(os.getpid()), "MY_TOKEN": "{SECRET}"}}
    pids.append(os.posix_spawn("/bin/sleep", [{EVIL!r} + "sleep", "600"], environ))
print("ready", flush=True)
sys.stdin.read(1)
for pid in pids[:ending]:
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    time.sleep(0.01)
sys.stdin.read()
for pid in pids[ending:]:
    os.kill(pid, signal.SIGKILL)
"""


class StandIns:
    """Sleeping processes that look like ranks."""

    def __init__(self, count: int, ending: int = 0) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", STAND_INS, str(count), str(ending)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self.process.stdout and self.process.stdout.readline() == "ready\n"

    def let_some_end(self) -> None:
        """Have the first of them end from now on."""
        assert self.process.stdin
        self.process.stdin.write("x")
        self.process.stdin.flush()

    def end(self) -> None:
        """End them all, and see that they are gone."""
        with self.process:
            self.let_some_end()
            assert self.process.stdin
            self.process.stdin.close()
            self.process.wait(60)


@pytest.fixture
def many() -> Iterator[StandIns]:
    """Yield 500 ranks' processes, of which 100 can be told to end."""
    made = StandIns(MANY, 100)
    yield made
    made.end()


def test_500_ranks_are_looked_at_in_time_and_leave_no_secret(many: StandIns, tmp_path: Path) -> None:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    seen = look("--pid", str(many.process.pid), "--out", str(tmp_path / "out"))
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert len(seen.report["places"]) == MANY
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    assert cpu_s < MOST_CPU_S, "the rest of its time it waits, within limits; how long that is, other load decides"
    (file,) = (tmp_path / "out").iterdir()
    assert file.stat().st_mode & 0o777 == 0o600
    assert SECRET not in file.read_text() and SECRET not in json.dumps(seen.report)


def test_processes_may_end_while_they_are_looked_at(many: StandIns) -> None:
    many.let_some_end()
    seen = look("--pid", str(many.process.pid))
    assert seen.code in (0, 1, 3) and "a defect" not in seen.stderr
    assert len(seen.report["places"]) >= MANY - 100


def test_control_characters_reach_no_terminal() -> None:
    few = StandIns(3)
    try:
        ran = subprocess.run(
            [sys.executable, "-m", "preflight", "stuck", "--pid", str(few.process.pid), "--watch", "2"],
            cwd=PROJECT, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert ran.returncode in (1, 3), ran.stderr
        assert not {"\x1b", "\x07", "\u202e"} & set(ran.stdout + ran.stderr)
        assert SECRET not in ran.stdout + ran.stderr
    finally:
        few.end()


def test_a_huge_environment_is_no_obstacle() -> None:
    environ = {f"HUGE_{i}": "x" * 100_000 for i in range(12)}
    own = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "2"}
    sleeper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], env=environ | own)
    try:
        time.sleep(0.2)
        seen = look("--pid", str(sleeper.pid), "--watch", "2")
        assert [place["rank"] for place in seen.report["places"]] == [0]
        assert "HUGE_" not in json.dumps(seen.report)
    finally:
        sleeper.kill()
        sleeper.wait()


def test_ctrl_c_gives_what_was_seen_by_then_and_whole_files(tmp_path: Path) -> None:
    few = StandIns(3)
    try:
        command = [sys.executable, "-m", "preflight", "stuck", "--pid", str(few.process.pid), "--watch", "60"]
        looking = subprocess.Popen(
            [*command, "--out", str(tmp_path / "out"), "--json", "-"], cwd=PROJECT, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        time.sleep(6)
        looking.send_signal(signal.SIGINT)
        stdout, stderr = looking.communicate(timeout=30)
        assert looking.returncode == 130, stderr
        assert "these are the results so far" in stderr
        report = json.loads(stdout)
        assert [(place["rank"], place["activity"]) for place in report["places"]] == [(i, "sleeping") for i in range(3)]
        (file,) = (tmp_path / "out").iterdir()
        assert json.loads(file.read_text())["ranks"][2]["rank"] == 2
    finally:
        few.end()


def test_a_hidden_proc_is_said_to_be_so() -> None:
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("only root can hide /proc from a command")
    hide = 'mount -t tmpfs none /proc && exec "$@"'
    ran = subprocess.run(
        ["unshare", "--mount", "sh", "-c", hide, "sh", sys.executable, "-m", "preflight", "stuck", "--json", "-"],
        cwd=PROJECT, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert ran.returncode == 3, ran.stderr
    assert "/proc shows no process" in ran.stderr
