"""What all tests share: skips that CI turns into failures, and the real command in a process of its own."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests.command import Command

PROJECT = Path(__file__).resolve().parent.parent


def pytest_configure() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # whoever was started by nohup ignores it, and all that it starts
    settings.register_profile("busy", deadline=None)  # a time limit is lost on a loaded machine, whatever the code does
    settings.load_profile("busy")
    os.environ.setdefault("HYPOTHESIS_STORAGE_DIRECTORY", str(PROJECT / ".hypothesis"))


@pytest.fixture(scope="session")
def need() -> Callable[[str, bool, str], None]:
    """Return a function that skips for want of something, or fails where PREFLIGHT_REQUIRE names it."""

    def check(what: str, have: bool, reason: str) -> None:
        if have:
            return
        if what in os.environ.get("PREFLIGHT_REQUIRE", "").split(","):
            pytest.fail(f"{what} is required here: {reason}")
        pytest.skip(reason)

    return check


@pytest.fixture
def command(tmp_path: Path) -> Iterator[Command]:
    """Return the real `preflight` command, run in an empty directory with its files below tmp_path.

    Afterwards nothing that it started may be left.
    """
    ready = Command(sys.executable, tmp_path)
    yield ready
    left = ready.processes()
    ready.kill_all()
    assert not left, f"left behind: {left}"
