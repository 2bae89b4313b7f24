"""Progress on stderr: a live line on a terminal, one every 30 s in a log, none with -q."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from collections.abc import Callable

import pytest

from preflight.system.streams import HEARTBEAT_S, Progress
from tests.command import Command

SHOW = "from preflight.system.streams import Progress; Progress().show(lambda width: 'x' * (width - 1))"


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.at_s = 100.0

    def __call__(self) -> float:
        return self.at_s


def said(number: int) -> Callable[[int], str]:
    return lambda width: f"step {number} of {width} columns"


def test_a_log_gets_a_line_every_30_s_and_no_control_codes(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    progress = Progress(now=clock)
    for second in range(100):
        clock.at_s = 100.0 + second
        progress.show(said(second))
    progress.clear()
    shown = capsys.readouterr().err
    assert HEARTBEAT_S == 30
    assert shown == "".join(f"step {second} of 120 columns\n" for second in (30, 60, 90))


def test_a_run_of_less_than_30_s_says_nothing_into_a_log(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    progress = Progress(now=clock)
    clock.at_s += 29
    progress.show(said(1))
    assert capsys.readouterr().err == ""


def test_who_asked_for_the_verdict_only_is_told_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    progress = Progress(is_quiet=True, now=clock)
    clock.at_s += 3600
    progress.show(said(1))
    progress.clear()
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(("term", "is_drawn"), [("xterm", True), ("dumb", False)])
def test_a_terminal_has_a_live_line_unless_it_is_dumb(command: Command, term: str, is_drawn: bool) -> None:
    ours, theirs = pty.openpty()
    subprocess.run([sys.executable, "-c", SHOW], stderr=theirs, env={**command.environ(), "TERM": term}, check=True)
    os.set_blocking(ours, False)
    try:
        drawn = os.read(ours, 4096)
    except BlockingIOError:
        drawn = b""
    os.close(theirs)
    os.close(ours)
    assert drawn.startswith(b"\r\x1b[K" + b"x" * 10) is is_drawn
    assert is_drawn or drawn == b""
