"""Whatever of ours is killed beside a job, it ends as without: with all of its output and its own exit code."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.job.test_same_as_without import PATIENCE_S, argv_of, in_terminal, is_running, read_to_end

pytestmark = pytest.mark.heavy(6)

LINES = 4000
# Both streams, a burst and a drip; it ends with a code, or by a signal.
JOB = (
    "import os, sys, time\n"
    f"for number in range({LINES}):\n"
    "    os.write(1, b'out %06d %s\\n' % (number, b'x' * (number % 300)))\n"
    "    os.write(2, b'err %06d\\n' % number)\n"
    "    if number % 20 == 0: time.sleep(0.005)\n"
    "os.kill(os.getpid(), 15) if sys.argv[1] == 'signal' else sys.exit(7)\n"
)


def helpers_of(pid: int, job: int) -> list[int]:
    """Return the processes of ours beside a job, and what they started."""
    found: list[int] = []
    waiting = [pid]
    while waiting:
        try:
            children = Path(f"/proc/{waiting[0]}/task/{waiting[0]}/children").read_text().split()
        except OSError:
            children = []
        waiting = [*waiting[1:], *(int(child) for child in children if int(child) != job)]
        found += [int(child) for child in children if int(child) != job]
    return found


def kill_at_random(run: subprocess.Popen[bytes], seed: int, killed: list[int]) -> None:
    """Kill helpers of a run until it ends, one after the other."""
    chance = random.Random(seed)
    while run.poll() is None:
        time.sleep(chance.random() * 0.03)
        jobs = [
            child
            for child in Path(f"/proc/{run.pid}/task/{run.pid}/children").read_text().split()
            if b"sys.argv[1]" in Path(f"/proc/{child}/cmdline").read_bytes()
        ]
        helpers = helpers_of(run.pid, int(jobs[0])) if jobs else []
        if helpers:
            killed.append(chance.choice(helpers))
            os.kill(killed[-1], signal.SIGKILL)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("end", ["code", "signal"])
def test_what_is_killed_beside_it_costs_no_byte_and_not_its_end(tmp_path: Path, end: str, seed: int) -> None:
    command = [sys.executable, "-c", JOB, end]
    plain = subprocess.run(command, capture_output=True, check=False)
    killed: list[int] = []
    with subprocess.Popen(
        argv_of(command, True, tmp_path), stdout=subprocess.PIPE, stderr=subprocess.PIPE, close_fds=False
    ) as run:
        killer = threading.Thread(target=kill_silently, args=(run, seed, killed), daemon=True)
        killer.start()
        out, err = run.communicate(timeout=2 * PATIENCE_S)
        killer.join(PATIENCE_S)
    assert len(killed) > 20
    assert run.returncode == plain.returncode == (7 if end == "code" else -15)
    assert out == plain.stdout
    assert err.startswith(plain.stderr), "whole, and what is said comes after it"
    assert b"Traceback" not in err
    assert not [pid for pid in killed if is_running(str(pid))]


def kill_silently(run: subprocess.Popen[bytes], seed: int, killed: list[int]) -> None:
    while run.poll() is None:
        try:
            kill_at_random(run, seed, killed)
        except OSError:  # what was to be looked at has ended
            continue


def test_a_reader_that_goes_away_while_helpers_are_killed_ends_it(tmp_path: Path) -> None:
    killed: list[int] = []
    job = "import os, signal\nsignal.signal(13, signal.SIG_DFL)\nwhile True: os.write(1, b'y' * 100)"
    with subprocess.Popen(
        argv_of([sys.executable, "-c", job], True, tmp_path),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, close_fds=False,
    ) as run:  # fmt: skip
        assert run.stdout
        killer = threading.Thread(target=kill_silently, args=(run, 1, killed), daemon=True)
        killer.start()
        run.stdout.read(1 << 20)
        run.stdout.close()
        assert run.wait(PATIENCE_S) == -signal.SIGPIPE
        killer.join(PATIENCE_S)


def test_in_a_terminal_whose_copier_is_killed_the_job_goes_on(tmp_path: Path) -> None:
    script = "for each in 1 2 3 4 5 6; do echo line $each; sleep 0.3; done; exit 5"
    with in_terminal(argv_of(["/bin/sh", "-c", script], True, tmp_path), tmp_path) as (pid, terminal):
        os.read(terminal, 4096)
        for _ in range(3):
            time.sleep(0.4)
            for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
                if Path(f"/proc/{child}/comm").read_text().startswith("preflight-copie"):
                    os.kill(int(child), signal.SIGKILL)
        printed = read_to_end(terminal)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 5
    assert printed.count(b"line ") >= 5
