"""A job under `preflight run` has every signal once, also those that few send, and stops and goes on as without."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.job.job import ALL, name_of
from tests.job.test_same_as_without import (
    PATIENCE_S,
    PROMPT,
    WAYS,
    argv_of,
    in_terminal,
    job_argv,
    read_to_end,
    read_until,
    wait_for,
)

pytestmark = pytest.mark.heavy(4)

QUEUED = 20  # real-time signals are counted by the kernel, the others are not


@WAYS
@pytest.mark.parametrize("to_group", [False, True], ids=["to the process", "to its group"])
def test_each_of_all_signals_comes_once(tmp_path: Path, supervised: bool, to_group: bool) -> None:
    seen = tmp_path / "seen"
    send = os.killpg if to_group else os.kill
    argv = argv_of(job_argv("all", seen), supervised, tmp_path)
    with subprocess.Popen(argv, stderr=subprocess.DEVNULL, start_new_session=True, close_fds=False) as job:
        wait_for(seen, "ready\n")
        for number in sorted(ALL - {signal.SIGTERM}):
            send(job.pid, number)
            wait_for(seen, f"\n{name_of(number)}\n")
        send(job.pid, signal.SIGTERM)
        assert job.wait(PATIENCE_S) == 7
    names = [name_of(number) for number in sorted(ALL - {signal.SIGTERM})]
    assert seen.read_text().split() == ["ready", *names, "SIGTERM"]


@WAYS
@pytest.mark.parametrize("to_group", [False, True], ids=["to the process", "to its group"])
def test_signals_that_come_all_at_once_come_as_often_as_they_were_sent(
    tmp_path: Path, supervised: bool, to_group: bool
) -> None:
    seen = tmp_path / "seen"
    send = os.killpg if to_group else os.kill
    # A SIGTSTP that is not taken up yet is dropped by SIGCONT, and the other way round.
    at_once = ALL - {signal.SIGTERM, signal.SIGTSTP}
    argv = argv_of(job_argv("all", seen), supervised, tmp_path)
    with subprocess.Popen(argv, stderr=subprocess.DEVNULL, start_new_session=True, close_fds=False) as job:
        wait_for(seen, "ready\n")
        for number in sorted(at_once):
            send(job.pid, number)
        for _ in range(QUEUED - 1):
            send(job.pid, signal.SIGRTMIN)
        for number in at_once:
            wait_for(seen, f"\n{name_of(number)}\n")
        wait_for_count(seen, "SIGRTMIN", QUEUED)
        send(job.pid, signal.SIGTERM)
        assert job.wait(PATIENCE_S) == 7
    expected = dict.fromkeys(map(name_of, at_once), 1) | {"SIGRTMIN": QUEUED, "SIGTERM": 1, "ready": 1}
    assert Counter(seen.read_text().split()) == expected


def test_two_signals_in_a_row_that_are_one_for_the_witness_come_twice(tmp_path: Path) -> None:
    """The witness of what reaches the whole group may be late: the kernel keeps one SIGUSR1 for it, of the two."""
    seen = tmp_path / "seen"
    argv = argv_of(job_argv("all", seen), True, tmp_path)
    with subprocess.Popen(argv, stderr=subprocess.DEVNULL, start_new_session=True, close_fds=False) as job:
        wait_for(seen, "ready\n")
        children = Path(f"/proc/{job.pid}/task/{job.pid}/children").read_text().split()
        [witness] = [int(each) for each in children if Path(f"/proc/{each}/comm").read_text() == "preflight-hears\n"]
        os.kill(witness, signal.SIGSTOP)
        while "\nState:\tT" not in Path(f"/proc/{witness}/status").read_text():
            time.sleep(0.01)
        for count in (1, 2):
            os.killpg(job.pid, signal.SIGUSR1)
            wait_for_count(seen, "SIGUSR1", count)
            signal.sigtimedwait([], 0.3)  # preflight has taken the first by now, and asks
        os.kill(witness, signal.SIGCONT)
        signal.sigtimedwait([], 0.3)
        os.kill(job.pid, signal.SIGTERM)
        assert job.wait(PATIENCE_S) == 7
    assert seen.read_text().split() == ["ready", "SIGUSR1", "SIGUSR1", "SIGTERM"]


def wait_for_count(seen: Path, name: str, count: int) -> None:
    """Wait until a line stands there so often; they may lie among others."""
    wait_for(seen, name)
    for _ in range(int(PATIENCE_S / 0.02)):
        if seen.read_text().split().count(name) >= count:
            return
        signal.sigtimedwait([], 0.02)


def wait_until_idle(pid: int) -> None:
    """Wait until a process sleeps and has no signal to take up, five times in a row."""
    until, calm = time.monotonic() + PATIENCE_S, 0
    while calm < 5:
        assert time.monotonic() < until
        signal.sigtimedwait([], 0.05)
        status = Path(f"/proc/{pid}/status").read_text()
        calm = calm + 1 if re.search(r"State:\tS.*ShdPnd:\t0+\n", status, re.DOTALL) else 0


@contextlib.contextmanager
def counting_in_terminal(seen: Path, supervised: bool, expected: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Yield the pid and the terminal of a job that counts signals; it must get these, and then SIGTERM."""
    argv = argv_of(job_argv("all", seen), supervised, seen.parent)
    with in_terminal(argv, seen.parent) as (pid, terminal):
        wait_for(seen, "ready\n")
        yield pid, terminal
        os.kill(pid, signal.SIGTERM)
        read_to_end(terminal)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
    got = [name for name in seen.read_text().split() if name != "SIGWINCH"]
    assert got == ["ready", *expected, "SIGTERM"]


@WAYS
def test_a_job_that_handles_ctrl_z_does_not_stop(tmp_path: Path, supervised: bool) -> None:
    seen = tmp_path / "seen"
    with counting_in_terminal(seen, supervised, ["SIGTSTP", "SIGINT"]) as (_, terminal):
        os.write(terminal, b"\x1a")
        wait_for(seen, "SIGTSTP\n")
        os.write(terminal, b"\x03")
        wait_for(seen, "SIGINT\n")


@WAYS
def test_a_signal_to_it_alone_comes_also_after_the_terminals(tmp_path: Path, supervised: bool) -> None:
    seen = tmp_path / "seen"
    with counting_in_terminal(seen, supervised, ["SIGINT", "SIGINT"]) as (pid, terminal):
        os.write(terminal, b"\x03")
        wait_for_count(seen, "SIGINT", 1)
        wait_until_idle(pid)  # the kernel keeps one SIGINT, and of one in a row with it nobody could tell
        os.kill(pid, signal.SIGINT)
        wait_for_count(seen, "SIGINT", 2)


@WAYS
def test_a_shell_sees_it_stop_where_sigtstp_was_sent_to_it_alone(tmp_path: Path, supervised: bool) -> None:
    job = ["/bin/sh", "-c", "echo pid=$$ parent=$PPID; while read line; do echo got $line; done; exit 5"]
    (tmp_path / "job").write_text(f"exec {shlex.join(argv_of(job, supervised, tmp_path))}\n")
    with in_terminal(["/bin/bash", "--norc", "--noprofile", "-i"], tmp_path) as (_, terminal):
        read_until(terminal, PROMPT)
        os.write(terminal, b"sh ./job\n")
        said = re.search(r"pid=(\d+) parent=(\d+)", read_until(terminal, r"parent=\d+\s"))
        assert said
        asked = said[2 if supervised else 1]
        for _ in range(3):
            while "State:\tS" not in Path(f"/proc/{asked}/status").read_text():  # `fg` reaches the job before it
                time.sleep(0.01)
            os.kill(int(asked), signal.SIGTSTP)
            read_until(terminal, f"Stopped.*{PROMPT}")
            os.write(terminal, b"fg\n")
            read_until(terminal, "sh ./job")
            os.write(terminal, b"hello\n")
            read_until(terminal, "got hello")
        os.write(terminal, b"\x04")
        read_until(terminal, PROMPT)
        os.write(terminal, b"echo code=$?\n")
        read_until(terminal, f"code=5.*{PROMPT}")


def test_a_job_of_another_user_that_may_not_be_signalled_ends_as_it_would(tmp_path: Path) -> None:
    """As of `sudo`: its sender may not signal it either. Here root gives up the right to, and the job its user."""
    if os.geteuid() != 0:
        pytest.skip("only root can start a job as another user")
    seen = tmp_path / "seen"
    code = (
        "import os, sys, time; os.setresuid(65534, 65534, 65534); sys.stdout.write('up'); sys.stdout.flush();"
        " time.sleep(3)"
    )
    argv = argv_of([sys.executable, "-c", code], True, tmp_path)
    without_right = ["setpriv", "--bounding-set", "-kill", "--inh-caps", "-kill", *argv]
    with (
        seen.open("w") as out,
        subprocess.Popen(without_right, stdout=out, stderr=subprocess.PIPE, close_fds=False) as run,
    ):
        wait_for(seen, "up")
        signal.sigtimedwait([], 0.5)
        run.send_signal(signal.SIGUSR1)
        _, said = run.communicate(timeout=PATIENCE_S)
    assert (run.returncode, said) == (0, b"")


@WAYS
@pytest.mark.parametrize("last", [signal.SIGTSTP, signal.SIGCONT], ids=["stops", "goes on"])
def test_of_a_stop_and_a_continue_in_a_row_the_last_one_counts(
    tmp_path: Path, supervised: bool, last: signal.Signals
) -> None:
    """The kernel drops a pending SIGCONT for a SIGTSTP, and the other way round: also that of who only listens."""
    seen = tmp_path / "seen"
    first = signal.SIGTSTP if last == signal.SIGCONT else signal.SIGCONT
    argv = argv_of(job_argv("all", seen), supervised, tmp_path)
    with subprocess.Popen(argv, stderr=subprocess.DEVNULL, start_new_session=True, close_fds=False) as job:
        wait_for(seen, "ready\n")
        for turn in range(1, 61):
            os.killpg(job.pid, first)
            os.killpg(job.pid, last)
            wait_for_count(seen, last.name, turn)
        os.kill(job.pid, signal.SIGTERM)
        assert job.wait(PATIENCE_S) == 7
    names = seen.read_text().split()
    assert names.count(last.name) == 60, "each came, and none twice"
    assert names[-2:] == [last.name, "SIGTERM"]
