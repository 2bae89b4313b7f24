"""Whatever stands against `preflight run`, the job ends as without: what preflight adds may fail, and nothing else."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from preflight.job.kept import Kept
from preflight.job.order import Order, supervisor_argv
from tests.command import Command
from tests.job.test_same_as_without import PATIENCE_S, WAYS, argv_of, wait_for

pytestmark = pytest.mark.heavy(6)

IGNORING = (
    "import os, signal, sys\n"
    "signal.signal(signal.SIGCHLD, signal.SIG_IGN)\n"
    "for number in (signal.SIGPIPE, signal.SIGXFSZ):\n"  # Python ignores them for itself
    "    signal.signal(number, signal.SIG_DFL)\n"
    "os.execvp(sys.argv[1], sys.argv[1:])"
)
SIMULATED = ("--backend", "simnccl@simnccl", "--nproc", "2")
SAID = b"preflight: "


def ended(argv: Sequence[str], **options: Any) -> subprocess.CompletedProcess[bytes]:
    """Run to the end; the order lies in an inherited descriptor."""
    defaults: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.run(argv, close_fds=False, timeout=100, check=False, **defaults | options)


def watched(script: str, temporary: Path | str) -> list[str]:
    """Return a supervised script at which `stuck` looks after a second, and the TMPDIR in which its output is kept."""
    order = Order(["/bin/sh", "-c", script], [], "no.env", 78, True, 1.0, "", False)
    return ["env", f"TMPDIR={temporary}", *supervisor_argv(order)]


@pytest.mark.parametrize(
    "job",
    [
        ("/bin/sh", "-c", "exit 7"),
        ("/bin/sh", "-c", "kill -KILL $$"),
        (sys.executable, "-c", "import signal; print(signal.getsignal(signal.SIGCHLD) == signal.SIG_IGN); exit(3)"),
    ],
    ids=["a code", "a signal", "what the job inherits"],
)
def test_with_sigchld_ignored_it_ends_as_without(tmp_path: Path, job: Sequence[str]) -> None:
    plain, under = (
        ended([sys.executable, "-c", IGNORING, *argv_of(job, supervised, tmp_path)]) for supervised in (False, True)
    )
    assert (under.returncode, under.stdout) == (plain.returncode, plain.stdout)
    assert plain.stdout in (b"", b"True\n")


@pytest.mark.integration
@pytest.mark.timeout(100)
def test_with_sigchld_ignored_a_refused_check_starts_nothing(command: Command) -> None:
    line = ("run", *SIMULATED, "--", "touch", "started")
    ran = command.run(*line, env={"SIMNCCL": "crash:rank=1,stage=init"}, prefix=(sys.executable, "-c", IGNORING))
    assert ran.code == 78, ran.stderr
    assert not (command.cwd / "started").exists()


def test_its_command_line_may_be_as_long_as_the_kernel_takes(tmp_path: Path) -> None:
    shards = [f"/data/shard-{number:06}.tar" for number in range(12_000)]
    plain, under = (ended(argv_of(["/bin/echo", *shards], supervised, tmp_path)) for supervised in (False, True))
    assert len(plain.stdout) > 250_000
    assert (under.returncode, under.stdout, under.stderr) == (0, plain.stdout, b"")


def test_a_command_line_of_more_than_128_kib_passes_the_options_as_well(command: Command) -> None:
    shards = [f"/data/shard-{number:06}.tar" for number in range(12_000)]
    ran = command.run("run", "-q", "--backend", "gloo", "--nproc", "1", "--", "/bin/echo", *shards)
    assert (ran.code, ran.stdout) == (0, " ".join(shards) + "\n"), ran.stderr


@WAYS
def test_a_full_disk_below_stdout_is_the_jobs_own_matter(tmp_path: Path, supervised: bool) -> None:
    script = "for each in 1 2 3; do echo $each; sleep 0.1; done 2>/dev/null; echo finished >&2; exit 5"
    with open("/dev/full", "wb") as full:
        ran = ended(argv_of(["/bin/bash", "-c", script], supervised, tmp_path), stdout=full)
    assert ran.returncode == 5
    assert ran.stderr.startswith(b"finished\n")


@WAYS
def test_a_full_disk_below_stderr_costs_what_is_said_and_not_the_job(tmp_path: Path, supervised: bool) -> None:
    with open("/dev/full", "wb") as full:
        ran = ended(argv_of(["/bin/sh", "-c", "echo out; exit 5"], supervised, tmp_path), stderr=full)
    assert (ran.returncode, ran.stdout) == (5, b"out\n")


def test_a_check_whose_page_can_not_be_written_starts_the_job(command: Command) -> None:
    with open("/dev/full", "w") as full:
        ran = command.run("run", "--backend", "gloo", "--nproc", "1", "--", "sh", "-c", "echo out; exit 5", stderr=full)
    assert (ran.code, ran.stdout) == (5, "out\n")


@pytest.mark.integration
@WAYS
@pytest.mark.parametrize("blocking", [True, False], ids=["blocking", "non-blocking"])
def test_a_reader_that_is_slow_gets_everything(tmp_path: Path, supervised: bool, blocking: bool) -> None:
    code = (
        "import os, time\n"
        "left = b'x' * 63 * 1024 + b'\\n' * 60 * 1024\n"
        "while left:\n"
        "    try: left = left[os.write(1, left):]\n"
        "    except BlockingIOError: time.sleep(0.01)\n"
    )
    reading, writing = os.pipe()
    os.set_blocking(writing, blocking)
    with subprocess.Popen(
        argv_of([sys.executable, "-c", code], supervised, tmp_path), stdout=writing, stderr=subprocess.PIPE,
        close_fds=False,
    ) as run:  # fmt: skip
        os.close(writing)
        time.sleep(4.0)  # longer than what outlives the job is waited for
        data = b"".join(iter(lambda: os.read(reading, 1 << 16), b""))
        os.close(reading)
        assert run.wait(PATIENCE_S) == 0
    assert len(data) == 123 * 1024


@pytest.mark.parametrize("script", ["sleep 3", "head -c 60000000 /dev/zero"], ids=["silent", "60 MB more"])
def test_a_job_whose_kept_output_was_deleted_ends_as_without(tmp_path: Path, script: str) -> None:
    seen, temporary = tmp_path / "seen", tmp_path / "tmp"
    temporary.mkdir()
    until_deleted = f"echo start; : >{seen}; while [ -d {temporary} ]; do sleep 0.05; done; {script}; exit 6"
    argv = watched(until_deleted, temporary)
    with subprocess.Popen(
        argv,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        close_fds=False,
    ) as run:
        wait_for(seen, "")
        shutil.rmtree(temporary)
        out, err = run.communicate(timeout=60)
    assert run.returncode == 6, err
    assert out.startswith(b"start\n") and len(out) == (6 if "sleep" in script else 60_000_006)
    assert err.endswith(b"preflight: /bin/sh ended with exit code 6\n"), "no file that is named has gone"


def test_where_no_folder_can_be_made_it_runs_and_nothing_is_kept() -> None:
    # What lies there stays in sight: this very tree may.
    to_read = "mount --bind $each $each && mount -o remount,bind,ro $each"
    read_only = f'for each in /tmp /var/tmp; do {to_read}; done; cd /proc; exec "$@"'
    argv = ["unshare", "-rm", "/bin/sh", "-c", read_only, "sh", *watched("echo out; exit 6", "/proc")]
    ran = ended(argv)
    if b"unshare" in ran.stderr:
        pytest.skip(f"no mount namespace can be made here: {ran.stderr.decode()}")
    assert (ran.returncode, ran.stdout) == (6, b"out\n"), ran.stderr
    assert b"the job's output is not kept" in ran.stderr


@pytest.mark.parametrize(("end", "code"), [("exit 7", 7), ("kill -TERM $$", -signal.SIGTERM), ("exit 0", 0)])
def test_where_nothing_more_can_be_opened_or_started_beside_it_the_job_ends_as_without(
    tmp_path: Path, end: str, code: int
) -> None:
    """All of ours may open nothing more, so that they can neither read /proc nor start `stuck` or `explain`."""
    ours = "sleep 0.3; for each in $PPID $(cat /proc/$PPID/task/$PPID/children); do [ $each = $$ ] ||"
    ran = ended(watched(f"{ours} prlimit --pid $each --nofile=3:3; done; sleep 3; echo end; {end}", tmp_path))
    assert (ran.returncode, ran.stdout) == (code, b"end\n"), ran.stderr
    lines = ran.stderr.splitlines()
    assert sum(b"`preflight stuck` failed (Too many open files)" in line for line in lines) == 1, ran.stderr
    assert all(line.startswith(SAID) for line in lines) and b"Traceback" not in ran.stderr


@pytest.mark.integration
def test_what_stuck_can_not_tell_is_one_line_and_no_page(tmp_path: Path) -> None:
    ran = ended(watched("sleep 12; echo end", tmp_path))
    assert (ran.returncode, ran.stdout) == (0, b"end\n")
    assert ran.stderr.count(b"\n") == 1, ran.stderr
    assert b"and `preflight stuck` could not find the reason; details: `preflight stuck -v " in ran.stderr


@pytest.mark.timeout(100)
@pytest.mark.parametrize(("options", "code", "starts"), [((), 0, True), (("--on-unknown", "stop"), 3, False)])
def test_a_check_that_the_kernel_kills_is_unknown(
    command: Command, options: tuple[str, ...], code: int, starts: bool
) -> None:
    (command.cwd / "preflight.env").write_text("export LEFT_BEHIND=1\n")
    line = ("run", *SIMULATED, *options, "--", "sh", "-c", "echo started $LEFT_BEHIND")
    with command.start(*line, env={"SIMNCCL": "hang:rank=1,stage=init"}) as run:
        os.kill(child_that_checks(run.pid), signal.SIGKILL)
        stdout, stderr = run.communicate(timeout=60)
    assert run.returncode == code, stderr
    assert stdout == ("started\n" if starts else ""), "without the settings that an earlier check left"
    assert "preflight: the check was ended by signal 9 (Killed)" in stderr


def child_that_checks(pid: int) -> int:
    """Return the check, once it and the witness are there."""
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        names = {int(child): Path(f"/proc/{child}/cmdline").read_bytes() for child in children}
        found = [child for child, line in names.items() if b"check" in line.split(b"\0")]
        if found:
            return found[0]
        time.sleep(0.02)
    raise AssertionError("no check was started")


@pytest.mark.parametrize("kind", ["fifo", "fifo with a reader", "link", "folder"])
def test_what_lies_where_output_is_to_be_kept_is_left_alone(tmp_path: Path, kind: str) -> None:
    keep, precious = tmp_path / "keep", tmp_path / "precious"
    keep.mkdir()
    precious.write_text("precious\n")
    names = [keep / f"{os.uname().nodename}.{name}.log" for name in ("stdout", "stderr")]
    for name in (*names, keep / "stuck.txt"):
        make: Callable[[Path], None] = os.mkdir if kind == "folder" else os.mkfifo
        make(name) if kind != "link" else name.symlink_to(precious)
    readers = [os.open(name, os.O_RDONLY | os.O_NONBLOCK) for name in names if kind == "fifo with a reader"]
    order = Order(["/bin/sh", "-c", "echo out; sleep 3"], [], "no.env", 78, True, 1.0, str(keep), False)
    ran = ended(supervisor_argv(order))
    assert (ran.returncode, ran.stdout) == (0, b"out\n"), ran.stderr
    assert (keep / f"{os.uname().nodename}.2.stdout.log").read_text() == "out\n", "another name is taken"
    assert precious.read_text() == "precious\n"
    for reader in readers:
        assert os.read(reader, 10) == b""
        os.close(reader)


def test_a_file_that_can_not_be_gone_on_with_is_closed_once(tmp_path: Path) -> None:
    """Its number may be another file's the moment after."""
    folder = tmp_path / "deleted"
    folder.mkdir()
    kept = Kept(str(folder / "log"), head_bytes=10, tail_bytes=10)
    shutil.rmtree(folder)
    kept.add(b"12345678")
    kept.add(b"12345678")
    others = [os.open(tmp_path, os.O_RDONLY) for _ in range(3)]
    kept.add(b"12345678")
    kept.finish()
    for other in others:
        os.close(other)
    assert kept.written == 24
