"""What reaches a terminal, a pipe, and a pipe that was closed."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import termios
import time
import unicodedata
from pathlib import Path

import pytest

from tests.cli.trees import DEVICE
from tests.command import Command, Ran
from tests.sysroot import build

pytestmark = pytest.mark.heavy(6)

ESC = "\x1b"
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
TERMINAL = {"TERM": "xterm-256color", "NO_COLOR": "", "LC_ALL": "C.UTF-8"}


def in_a_terminal(command: Command, *arguments: str, env: dict[str, str], columns: int = 80) -> tuple[int, str]:
    """Run the command with a terminal of this width as stdout and stderr; return its exit code and what it drew."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    process = command.start(*arguments, env=TERMINAL | env, stdout=theirs, stderr=theirs)
    os.close(theirs)
    drawn = b""
    with contextlib.closing(os.fdopen(ours, "rb", buffering=0)) as reader:
        try:
            while piece := reader.read(1 << 16):
                drawn += piece
        except OSError as error:  # Linux says EIO when the last writer has gone
            assert error.errno == errno.EIO
    return process.wait(timeout=20), drawn.decode()


def columns_of(line: str) -> int:
    return sum(2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in line)


def too_wide(text: str, columns: int) -> list[str]:
    plain = COLOUR.sub("", text)
    return [line for line in re.split(r"[\r\n]+", plain) if columns_of(line.replace("\x1b[K", "")) > columns]


@pytest.fixture
def not_ready(command: Command) -> tuple[str, ...]:
    """Arguments of a check that prints a full page in a moment, since nothing can be launched."""
    build(command.tmp_path / "tree", DEVICE)
    return ("check", "--sysroot", str(command.tmp_path / "tree"))


def test_a_terminal_gets_colours_and_no_color_switches_them_off(command: Command, not_ready: tuple[str, ...]) -> None:
    code, coloured = in_a_terminal(command, *not_ready, env={})
    assert code == 1
    assert COLOUR.search(coloured)
    _, plain = in_a_terminal(command, *not_ready, env={"NO_COLOR": "1"})
    assert ESC not in plain
    _, dumb = in_a_terminal(command, *not_ready, env={"TERM": "dumb"})
    assert ESC not in dumb


@pytest.mark.parametrize("columns", [80, 60])
def test_no_line_is_wider_than_the_terminal(command: Command, not_ready: tuple[str, ...], columns: int) -> None:
    for arguments in (not_ready, ("probe",), ("checks",)):
        _, page = in_a_terminal(command, *arguments, env={}, columns=columns)
        assert too_wide(page, columns) == []


def test_a_pipe_gets_80_columns_or_what_COLUMNS_says_without_colour(  # noqa: N802
    command: Command, not_ready: tuple[str, ...]
) -> None:
    for env, columns in (({}, 80), ({"COLUMNS": "80"}, 80), ({"COLUMNS": "60"}, 60)):
        ran = command.run(*not_ready, env=TERMINAL | env)
        assert ESC not in ran.stdout + ran.stderr
        assert too_wide(ran.stdout, columns) == []


@pytest.mark.usefixtures("cpu_path")
def test_a_healthy_run_in_a_terminal_draws_its_progress_on_stderr_and_wipes_it(command: Command) -> None:
    code, drawn = in_a_terminal(command, "check", env={})
    assert code == 0, drawn
    assert "at most 180 s" in drawn
    page = drawn[drawn.rindex("\x1b[K") + len("\x1b[K") :]
    assert page.startswith("CPU path"), "the progress line is wiped before the page is printed"
    assert "READY" in page
    assert "Recommendation" in page
    assert too_wide(drawn, 80) == []


@pytest.mark.usefixtures("cpu_path")
@pytest.mark.parametrize(("options", "env"), [(("-q",), {}), (("-v",), {"TERM": "dumb"})])
def test_with_q_or_on_a_dumb_terminal_no_line_is_drawn(
    command: Command, options: tuple[str, ...], env: dict[str, str]
) -> None:
    code, drawn = in_a_terminal(command, "check", *options, env=env)
    assert code == 0, drawn
    assert "\x1b[K" not in drawn and "at most" not in drawn
    assert drawn.count("\n") == 1 or "-v" in options


def test_a_terminal_that_is_closed_ends_the_run_and_the_report_says_the_same_code(command: Command) -> None:
    ours, theirs = pty.openpty()
    process = command.start(
        "check", "--backend", "gloo", "--nproc", "1", prefix=("setsid", "-c"), env=TERMINAL,
        stdin=theirs, stdout=theirs, stderr=theirs,
    )  # fmt: skip
    os.close(theirs)
    until = time.monotonic() + 20
    while not any(line.startswith("preflight-r") for line in command.processes().values()):
        assert time.monotonic() < until
        time.sleep(0.02)
    os.close(ours)
    assert process.wait(timeout=30) == 129
    assert json.loads((command.cwd / "preflight-report.json").read_text())["exit_code"] == 129


def closed_pipe() -> int:
    """Return the writing end of a pipe that nobody reads."""
    reader, writer = os.pipe()
    os.close(reader)
    return writer


def run_into(command: Command, stdout: int, *arguments: str) -> Ran:
    try:
        return command.run(*arguments, stdout=stdout)
    finally:
        os.close(stdout)


def test_a_reader_that_went_away_changes_neither_exit_code_nor_files(command: Command) -> None:
    ran = run_into(command, closed_pipe(), "check", "--backend", "gloo", "--nproc", "1")
    assert (ran.code, ran.stderr) == (0, "")
    assert sorted(path.name for path in ran.cwd.iterdir()) == ["preflight-report.json", "preflight.env"]


def test_a_verdict_against_the_node_survives_head(command: Command, not_ready: tuple[str, ...]) -> None:
    """As typed: `preflight check | head -1; echo ${PIPESTATUS[0]}`."""
    line = f"{command.python} -m preflight {' '.join(not_ready)} | head -1; echo code ${{PIPESTATUS[0]}}"
    ran = subprocess.run(
        ["bash", "-c", line], env=command.environ(), cwd=command.cwd, capture_output=True, text=True, check=False
    )
    assert len(ran.stdout.splitlines()) == 2
    assert ran.stdout.splitlines()[-1] == "code 1"
    assert ran.stderr == ""


@pytest.mark.parametrize("arguments", [("probe",), ("checks",), ("--help",), ("--version",)], ids=" ".join)
def test_other_commands_end_quietly_too_when_nobody_reads(command: Command, arguments: tuple[str, ...]) -> None:
    ran = run_into(command, closed_pipe(), *arguments)
    assert ran.stderr == ""
    assert ran.code in ((0, 1) if arguments == ("probe",) else (0,))


def test_a_full_disk_behind_stdout_is_not_a_verdict(command: Command, not_ready: tuple[str, ...]) -> None:
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        ran = command.run(*not_ready, "--json", "-", stdout=full)
    assert ran.code == 3
    assert len(ran.stderr.splitlines()) == 1
    assert "no space left" in ran.stderr.lower()
    assert (command.cwd / "preflight-report.json").exists()


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_standard_streams_change_no_exit_code(command: Command, not_ready: tuple[str, ...], closed: str) -> None:
    """Python would leave with 1, the code of a verdict, for what it can't print."""
    prefix = ("sh", "-c", f'exec "$@" {closed}', "sh")
    assert command.run("check", "--nope", prefix=prefix).code == 2
    assert command.run(*not_ready, "--accept", prefix=prefix).code == 1
    assert command.run("checks", prefix=prefix).code == 0
    assert (command.cwd / "preflight-report.json").exists()


def test_a_terminal_without_unicode_gets_ascii(command: Command, not_ready: tuple[str, ...]) -> None:
    ran = command.run(*not_ready, env={"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0", "LC_ALL": "C"})
    assert ran.code == 1, ran.stderr
    assert ran.stdout.isascii()
    assert "gpu-driver" in ran.stdout
