"""A job under `preflight run` has what it has without: exit code, every signal once, output, terminal, descriptors."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import select
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from preflight.job.kept import Kept
from preflight.job.order import Order, supervisor_argv

pytestmark = pytest.mark.heavy(6)

JOB = Path(__file__).with_name("job.py")
WAYS = pytest.mark.parametrize("supervised", [False, True], ids=["without", "under run"])
PATIENCE_S = 30.0
PROMPT = "bash-[0-9.]+[#$] "


def argv_of(command: Sequence[str], supervised: bool, keep: Path) -> list[str]:
    """Return the command, as it is or supervised without a check."""
    order = Order(list(command), [], "no.env", 78, True, 600.0, str(keep), False)
    return supervisor_argv(order) if supervised else list(command)


def job_argv(way: str, seen: Path, *more: str) -> list[str]:
    return [sys.executable, str(JOB), way, str(seen), *more]


def is_running(pid: str) -> bool:
    """Return whether a process runs; who waits for an orphan's end, and when, is the machine's affair."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def wait_for(seen: Path, text: str) -> None:
    until = time.monotonic() + PATIENCE_S
    while not (seen.exists() and text in seen.read_text()):
        assert time.monotonic() < until, seen.read_text() if seen.exists() else "nothing was written"
        time.sleep(0.02)


@contextlib.contextmanager
def in_terminal(argv: Sequence[str], folder: Path) -> Iterator[tuple[int, int]]:
    """Start a command as the foreground job of a terminal of its own; yield its pid and our end."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(folder)
        os.execv(argv[0], list(argv))
    try:
        yield pid, terminal
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, 0)
        os.close(terminal)


def read_until(terminal: int, pattern: str) -> str:
    """Read until a text has come, other than as the echo of what was typed; return all that came."""
    data, until = "", time.monotonic() + PATIENCE_S
    while not re.search(pattern, data, re.DOTALL):
        assert select.select([terminal], [], [], max(0.0, until - time.monotonic()))[0], data
        data += os.read(terminal, 4096).decode()
    return data


def read_to_end(terminal: int) -> bytes:
    data = b""
    with contextlib.suppress(OSError):
        while select.select([terminal], [], [], PATIENCE_S)[0] and (piece := os.read(terminal, 4096)):
            data += piece
    return data


@pytest.mark.parametrize(
    "script",
    [
        "echo out; echo err >&2",
        "echo out; exit 3",
        "printf 'no newline'; printf '\\377\\0bytes' >&2; exit 1",
        "kill -SEGV $$",
        "kill -KILL $$",
        "kill -TERM $$",
    ],
)
def test_it_ends_with_the_same_code_or_signal_and_the_same_output(tmp_path: Path, script: str) -> None:
    plain, under = (
        subprocess.run(
            argv_of(["/bin/sh", "-c", script], supervised, tmp_path), close_fds=False, capture_output=True, check=False
        )
        for supervised in (False, True)
    )
    assert (under.returncode, under.stdout) == (plain.returncode, plain.stdout)
    assert under.stderr.startswith(plain.stderr)
    assert (b"\npreflight: /bin/sh ended with" in b"\n" + under.stderr) == (plain.returncode != 0)
    assert (b"ended with signal 15 (Terminated)" in under.stderr) == (plain.returncode == -15)


@WAYS
@pytest.mark.parametrize("to_group", [False, True], ids=["to the process", "to its group"])
@pytest.mark.parametrize("ignored", ["", "trap '' INT HUP; "], ids=["in front", "in the background"])
def test_every_signal_comes_once(tmp_path: Path, supervised: bool, to_group: bool, ignored: str) -> None:
    seen = tmp_path / "seen"
    send = os.killpg if to_group else os.kill
    argv = argv_of(job_argv("SIGTERM", seen), supervised, tmp_path)
    argv = ["/bin/bash", "-c", f'{ignored}exec "$@"', "bash", *argv]
    with subprocess.Popen(argv, stderr=subprocess.DEVNULL, start_new_session=True, close_fds=False) as job:
        wait_for(seen, "ready")
        for number in (signal.SIGUSR1, signal.SIGHUP, signal.SIGINT, signal.SIGINT, signal.SIGTERM):
            send(job.pid, number)
            time.sleep(0.3)
        assert job.wait(PATIENCE_S) == 7
    assert seen.read_text().split() == ["ready", "SIGUSR1", "SIGHUP", "SIGINT", "SIGINT", "SIGTERM"]


@WAYS
def test_ctrl_c_twice_comes_twice(tmp_path: Path, supervised: bool) -> None:
    seen = tmp_path / "seen"
    with in_terminal(argv_of(job_argv("SIGTERM", seen), supervised, tmp_path), tmp_path) as (pid, terminal):
        wait_for(seen, "ready")
        for count in (1, 2):
            os.write(terminal, b"\x03")
            wait_for(seen, "SIGINT\n" * count)
        time.sleep(0.3)
        os.kill(pid, signal.SIGTERM)
        read_to_end(terminal)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
    assert seen.read_text().split() == ["ready", "SIGINT", "SIGINT", "SIGTERM"]


@WAYS
def test_a_shell_stops_it_and_takes_it_up_again_in_front_and_behind(tmp_path: Path, supervised: bool) -> None:
    job = ["/bin/sh", "-c", "echo ready; read line; echo got $line; exit 5"]
    for name, command in (("job", job), ("other", ["/bin/sh", "-c", "sleep 0.2; exit 6"])):
        (tmp_path / name).write_text(f"exec {shlex.join(argv_of(command, supervised, tmp_path))}\n")
    with in_terminal(["/bin/bash", "--norc", "--noprofile", "-i"], tmp_path) as (_, terminal):
        for typed, answer in (  # what is typed before the prompt may be lost while the shell sets up the terminal
            ("", PROMPT),
            ("sh ./job\n", "ready"),
            ("\x1a", f"Stopped.*{PROMPT}"),
            ("fg\n", "job"),
            ("hello\n", f"got hello.*{PROMPT}"),
            ("echo code=$?\n", f"code=5.*{PROMPT}"),
            ("sh ./other & wait $!; echo code=$?\n", "code=6"),
        ):
            os.write(terminal, typed.encode())
            read_until(terminal, answer)


def test_in_a_terminal_it_has_a_terminal_of_that_size_and_what_it_writes_arrives_once(tmp_path: Path) -> None:
    told, printed = [], []
    for supervised in (False, True):
        seen = tmp_path / f"seen{supervised}"
        with in_terminal(argv_of(job_argv("describe", seen), supervised, tmp_path), tmp_path) as (pid, terminal):
            printed.append(read_to_end(terminal))
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        told.append([line for line in seen.read_text().splitlines() if not line.startswith("group")])
    assert told[0] == told[1]
    assert "foreground True" in told[0][-1]
    assert printed == [b"one line\r\n"] * 2


@pytest.mark.parametrize("ignored", ["", "trap '' INT QUIT HUP; "], ids=["in front", "in the background"])
def test_it_inherits_the_same_signals_descriptors_and_folder(tmp_path: Path, ignored: str) -> None:
    told = []
    for supervised in (False, True):
        seen = tmp_path / f"seen{supervised}"
        argv = argv_of(job_argv("describe", seen, "--", "-x", "", "a b"), supervised, tmp_path)
        with (tmp_path / "lock").open("w") as lock:
            os.set_inheritable(lock.fileno(), True)
            subprocess.run(
                ["/bin/bash", "-c", f'umask 027; {ignored}"$@"', "bash", *argv],
                stdin=subprocess.DEVNULL, close_fds=False, check=True, cwd=tmp_path,
            )  # fmt: skip
        told.append(seen.read_text().splitlines())
    assert told[0] == told[1]


def test_a_reader_that_goes_away_ends_it_as_without(tmp_path: Path) -> None:
    ended = []
    for supervised in (False, True):
        script = '"$@" | head -c 10 >/dev/null; exit ${PIPESTATUS[0]}'
        argv = ["/bin/bash", "-c", script, "bash", *argv_of(["yes"], supervised, tmp_path)]
        ended.append(subprocess.run(argv, check=False, timeout=60, stderr=subprocess.PIPE, text=True, close_fds=False))
    plain, under = ended
    assert (plain.returncode, under.returncode) == (141, 141)
    said = under.stderr.splitlines()  # and no page of `explain`: the user ended it
    assert len(said) == 1 and "its output is no longer read" in said[0]


def test_when_it_is_killed_the_job_is(tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    script = f"echo $$ >{seen}; exec sleep 60"
    with subprocess.Popen(argv_of(["/bin/sh", "-c", script], True, tmp_path), close_fds=False) as run:
        wait_for(seen, "\n")
        run.kill()
    until = time.monotonic() + PATIENCE_S
    while is_running(seen.read_text().strip()):
        assert time.monotonic() < until
        time.sleep(0.02)


def test_its_settings_are_those_of_the_sourced_file_and_all_else_is_untouched(tmp_path: Path) -> None:
    (tmp_path / "preflight.env").write_text(
        "export A='it'\\''s'\nunset B\nif [ \"${NNODES:-1}\" = 1 ]; then\n  export C=1\nfi\n"
    )
    order = Order(["/usr/bin/env", "-0"], [], "preflight.env", 78, True, 600.0, str(tmp_path), False)
    environ = {
        "PATH": os.environ["PATH"],
        "B": "2",
        "PYTHONPATH": "/x",
        "BASH_FUNC_module%%": "() { :\n}",
        "NNODES": "2",
    }
    ran = subprocess.run(
        supervisor_argv(order), env=environ, cwd=tmp_path, close_fds=False, capture_output=True, text=True, check=True
    )
    got = dict(line.split("=", 1) for line in ran.stdout.split("\0") if line)
    assert got == {**{name: value for name, value in environ.items() if name != "B"}, "A": "it's"}


def test_output_is_kept_in_private_files_one_a_stream(tmp_path: Path) -> None:
    subprocess.run(
        argv_of(["/bin/sh", "-c", "echo out; echo err >&2"], True, tmp_path),
        close_fds=False,
        capture_output=True,
        check=True,
    )
    kept = {path.name.partition(".")[2]: path for path in tmp_path.iterdir()}
    assert {name: path.read_text() for name, path in kept.items()} == {"stdout.log": "out\n", "stderr.log": "err\n"}
    assert {path.stat().st_mode & 0o777 for path in kept.values()} == {0o600}


@pytest.mark.parametrize("pieces", [3, 10, 11, 25, 99])
def test_of_too_much_output_the_beginning_and_the_end_are_kept(tmp_path: Path, pieces: int) -> None:
    kept = Kept(str(tmp_path / "log"), head_bytes=100, tail_bytes=100)
    lines = [b"%08d\n" % number + b"." for number in range(pieces)]
    for line in lines:
        kept.add(line)
    kept.finish()
    data = (tmp_path / "log").read_bytes()
    whole = b"".join(lines)
    assert data[:100] == whole[:100]
    assert data.endswith(whole[-100:])
    assert len(data) <= 400
    assert (b"bytes were not kept" in data) == (pieces > 30)
    assert list(tmp_path.iterdir()) == [tmp_path / "log"]


def test_it_and_its_helpers_take_little_memory(tmp_path: Path) -> None:
    script = (
        "sleep 0.5; for each in $PPID $(cat /proc/$PPID/task/$PPID/children); do [ $each = $$ ] ||"
        " { cd /proc/$each; echo $(cat comm) $(grep ^Pss: smaps_rollup) $(cat oom_score_adj); }; done"
    )
    ran = subprocess.run(
        argv_of(["/bin/sh", "-c", script], True, tmp_path), close_fds=False, capture_output=True, text=True, check=True
    )
    ours = [line.split() for line in ran.stdout.splitlines()]
    names = [name for name, *_ in ours]
    assert names == ["preflight-run", "preflight-hears", "preflight-looks", "preflight-copie", "preflight-copie"]
    assert sum(int(pss_kib) for _, _, pss_kib, *_ in ours) < 40 * 1024
    assert [line[-1] for line in ours] == [Path("/proc/self/oom_score_adj").read_text().strip(), *["1000"] * 4]


def test_into_a_file_it_writes_itself_and_what_failed_is_read_there(tmp_path: Path) -> None:
    script = "readlink /proc/self/fd/1; echo err >&2; sleep 0.5; cat /proc/$PPID/task/$PPID/children | wc -w; exit 3"
    out = tmp_path / "out"
    out.write_text("of before\n")
    for mode in ("a", "r+"):
        with out.open(mode) as file:
            file.seek(0, os.SEEK_END)
            ran = subprocess.run(
                argv_of(["/bin/sh", "-c", script], True, tmp_path),
                close_fds=False,
                stdout=file,
                stderr=file,
                check=False,
            )
        assert ran.returncode == 3
        said = out.read_text()
        assert said.startswith(f"of before\n{out}\nerr\n3\npreflight: /bin/sh ended with exit code 3"), "no copier"
        kept = next(tmp_path.glob("*.stdout.log")).read_text()
        assert kept.startswith(f"{out}\nerr\n3\n") and "of before" not in kept
        out.write_text("of before\n")
