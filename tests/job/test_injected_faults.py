"""Each system call of ours beside a job fails once (strace -e inject): the job ends as without, and so do we."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.job.test_same_as_without import PATIENCE_S, argv_of

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]
# What each of our processes calls beside a job, the errors of that call's man page, and how often it is tried.
FILES = ("EBADF", "EINTR", "EIO", "EINVAL")
WRITES = (*FILES, "EAGAIN", "ENOSPC", "EPIPE")
SIGNALS = ("EAGAIN", "EINTR", "EINVAL")
CALLS: dict[str, dict[str, tuple[tuple[str, ...], int]]] = {
    "preflight-run": {
        "rt_sigtimedwait": (SIGNALS, 3),
        "rt_sigpending": (("EFAULT",), 1),
        "pselect6": (("EBADF", "EINTR", "EINVAL", "ENOMEM"), 2),
        "read": (FILES, 1),
        "kill": (("EINVAL", "EPERM", "ESRCH"), 3),
        "wait4": (("ECHILD", "EINTR", "EINVAL"), 4),
        "write": (WRITES, 1),
        "close": (("EBADF", "EINTR", "EIO"), 2),
    },
    "preflight-hears": {"rt_sigtimedwait": (SIGNALS, 2), "write": (WRITES, 1)},
    "preflight-copie": {
        "tee": (("EAGAIN", "EINVAL", "ENOMEM"), 2),
        "splice": (("EAGAIN", "EBADF", "EINVAL", "ENOMEM", "EPIPE"), 2),
        "read": (FILES, 2),
        "write": (WRITES, 2),
    },
    "preflight-looks": {
        "pselect6": (("EBADF", "EINTR", "EINVAL", "ENOMEM"), 1),
        "read": (FILES, 2),
        "close": (("EBADF", "EINTR", "EIO"), 3),
        "newfstatat": (("EACCES", "ENOENT", "ENOMEM"), 3),
        "getdents64": (("EBADF", "ENOENT"), 2),
        "openat": (("EACCES", "EMFILE", "ENOENT", "ENOSPC"), 2),
        "lseek": (("EINVAL", "ESPIPE"), 2),
        "ioctl": (("ENOTTY", "EINVAL"), 2),
        "write": (WRITES, 2),
        "pipe2": (("EMFILE", "ENFILE"), 1),
        "clone": (("EAGAIN", "ENOMEM"), 1),
        "wait4": (("ECHILD", "EINTR"), 2),
        "clock_nanosleep": (("EINTR", "EINVAL"), 1),
    },
}
HARMLESS = {
    "getpid", "getppid", "getpgrp", "exit_group", "clock_gettime", "brk", "mmap", "munmap", "rt_sigprocmask",
    "rt_sigreturn", "close_range", "futex", "madvise", "mremap", "restart_syscall",
}  # fmt: skip
CASES = [
    pytest.param(role, call, error, when, id=f"{role.removeprefix('preflight-')} {call} {when} {error}")
    for role, calls in CALLS.items()
    for call, (errors, times) in calls.items()
    for error in errors
    for when in range(1, times + 1)
]
OUT = "start\nusr1\n" + "".join(f"out {number}\n" for number in range(30))
ERR = "".join(f"err {number}\n" for number in range(30))


def traced(folder: Path, need: Callable[[str, bool, str], None], role: str, *inject: str) -> tuple[int, str, str, str]:
    """Return exit code, output and trace of a job that writes, has a signal and fails; of ours one is traced."""
    need("strace", shutil.which("strace") is not None, "strace is not installed")
    go, trace = folder / "go", folder / "trace"
    os.mkfifo(go)
    script = (
        f"trap 'echo usr1; heard=1' USR1; echo start; read go <{go}; until [ $heard ]; do sleep 0.01; done; i=0;"
        " while [ $i -lt 30 ]; do echo out $i; echo err $i >&2; i=$((i+1)); sleep 0.005; done; exit 7"
    )
    argv = argv_of(["/bin/bash", "-c", script], True, folder)
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, close_fds=False) as run:
        assert run.stdout
        assert run.stdout.readline() == "start\n"
        pid = process_of(run.pid, role)
        command = ["strace", "-p", str(pid), "-o", str(trace), *inject]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as strace:
            assert strace.stderr
            attached = strace.stderr.readline()
            assert "attached" in attached, attached
            go.write_text("go\n")
            time.sleep(0.05)
            os.kill(run.pid, signal.SIGUSR1)
            out, err = run.communicate(timeout=PATIENCE_S)
            strace.wait(PATIENCE_S)
    return run.returncode, "start\n" + out, err, trace.read_text()


def process_of(pid: int, role: str) -> int:
    """Return our process that has this name, once it waits."""
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        for each in (str(pid), *Path(f"/proc/{pid}/task/{pid}/children").read_text().split()):
            status = Path(f"/proc/{each}/status").read_text()
            if f"Name:\t{role}\n" in status and "State:\tS" in status:
                return int(each)
        time.sleep(0.02)
    raise AssertionError(f"there is no {role}")


@pytest.mark.parametrize("role", CALLS)
def test_no_call_is_made_that_is_not_tried_below(
    tmp_path: Path, need: Callable[[str, bool, str], None], role: str
) -> None:
    code, out, err, trace = traced(tmp_path, need, role)
    assert (code, out) == (7, OUT)
    assert err.startswith(ERR)
    made = set(re.findall(r"^(\w+)\(", trace, re.MULTILINE))
    assert made - HARMLESS <= set(CALLS[role])


@pytest.mark.heavy(6)
@pytest.mark.parametrize(("role", "call", "error", "when"), CASES)
def test_a_call_that_fails_once_changes_nothing_for_the_job(
    tmp_path: Path, need: Callable[[str, bool, str], None], role: str, call: str, error: str, when: int
) -> None:
    inject = f"inject={call}:error={error}:when={when}"
    code, out, err, trace = traced(tmp_path, need, role, "-e", "trace=all", "-e", inject)
    assert code == 7
    assert sorted(out.splitlines()) == sorted(OUT.splitlines()) and out.startswith("start\n")
    assert [line for line in err.splitlines() if line.startswith("err ")] == ERR.splitlines()
    assert "Traceback" not in err
    assert "(INJECTED)" in trace or trace.count(f"{call}(") < when, "it was made to fail"
