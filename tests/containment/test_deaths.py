"""Whoever of the run is killed, nobody survives it for long, and whoever is left says what died."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.command import Command

pytestmark = pytest.mark.timing

WAIT_S = 60.0
MIDDLE_OF_A_TRIAL = {"SIMNCCL": "hang:stage=timed"}


def is_launcher(line: str) -> bool:
    return "-m preflight check" in line


def is_torchrun(line: str) -> bool:
    return "-m preflight.trial.worker" in line and not is_supervisor(line)


def is_supervisor(line: str) -> bool:
    return line.startswith("preflight-r")


def start(command: Command) -> subprocess.Popen[str]:
    return command.start(
        "check", "--backend", "simnccl@simnccl", "--nproc", "2", "--stage-limit", "30", env=MIDDLE_OF_A_TRIAL
    )


def wait_for(command: Command, ready: Callable[[list[str]], bool]) -> dict[int, str]:
    until = time.monotonic() + WAIT_S
    while not ready(list((found := command.processes()).values())):
        assert time.monotonic() < until, found
        time.sleep(0.02)
    return found


def held_log(command: Command) -> Path:
    """Return a FIFO in place of rank 1's log: its supervisor waits there, and the other ranks wait for it."""
    until = time.monotonic() + WAIT_S
    while not (found := [run / "torchrun" for run in command.run_dirs if (run / "torchrun").is_dir()]):
        assert time.monotonic() < until, command.run_dirs
        time.sleep(0.005)
    log = found[0] / "rank1.log"
    os.mkfifo(log)
    return log


def in_the_middle_of_a_trial(lines: list[str]) -> bool:
    return sum(map(is_supervisor, lines)) == 4  # two supervisors and a forked child of each


def while_starting(lines: list[str]) -> bool:
    return sum(map(is_supervisor, lines)) == 2


@pytest.mark.parametrize(
    "moment", [pytest.param(while_starting, marks=pytest.mark.integration), in_the_middle_of_a_trial]
)
@pytest.mark.parametrize("who", [is_launcher, is_torchrun, is_supervisor])
def test_sigkill_of_one_leaves_nothing(
    command: Command, who: Callable[[str], bool], moment: Callable[[list[str]], bool]
) -> None:
    process = start(command)
    log = held_log(command) if moment is while_starting else None
    found = wait_for(command, moment)
    if log:
        log.unlink()
    else:
        time.sleep(0.3)
    victim = max(
        pid for pid, line in found.items() if who(line) and (who is not is_supervisor or not parent_is(pid, found))
    )
    os.kill(victim, signal.SIGKILL)
    command.wait_until_gone(within_s=3)
    stdout, stderr = process.communicate(timeout=5)
    if who is is_launcher:
        return
    assert process.returncode == 3, stdout + stderr
    assert "SIGKILL" in stdout
    assert ("torchrun" if who is is_torchrun else "process of rank") in stdout
    assert command.shm_files() == set()


def parent_is(pid: int, found: dict[int, str]) -> bool:
    """Tell whether the process is a trial child: its parent looks like a supervisor too."""
    with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
        parent = int(file.read().rpartition(")")[2].split()[1])
    return is_supervisor(found.get(parent, ""))


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)], ids=["INT", "TERM", "HUP"]
)
def test_a_signal_prints_what_is_known_and_exits_within_a_second(command: Command, number: int, code: int) -> None:
    process = start(command)
    wait_for(command, in_the_middle_of_a_trial)
    start_s = time.monotonic()
    process.send_signal(number)
    stdout, stderr = process.communicate(timeout=10)
    assert time.monotonic() - start_s < 1.0
    assert process.returncode == code, stdout + stderr
    assert "default" in stdout
    assert "Traceback" not in stdout + stderr
    assert command.processes() == {}


def test_a_deadline_ends_a_hanging_run_with_what_is_known(command: Command) -> None:
    ran = command.simulate("hang:stage=timed", "--deadline", "9", ranks=2, limit_s=60)
    assert ran.code in (1, 3), ran.stdout
    assert ran.took_s < 9.0
    assert "deadline" in ran.stdout
    assert command.processes() == {}


def test_a_deadline_of_five_seconds_holds(command: Command) -> None:
    ran = command.simulate("hang", "--deadline", "5", ranks=2, limit_s=60)
    assert ran.code in (1, 3), ran.stdout
    assert ran.took_s < 5.0
    assert command.processes() == {}
