"""What all tests share: skips that CI turns into failures, and the real command in a process of its own."""

from __future__ import annotations

import os
import signal
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests.command import Command
from tests.sampling import drawn

PROJECT = Path(__file__).resolve().parent.parent
# Each ring is run by a target of its own, and of its tests without a mark one in so many is drawn.
RINGS = {"integration": 3, "timing": 1, "simcuda": 3}


def pytest_configure() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # whoever was started by nohup ignores it, and all that it starts
    settings.register_profile("busy", deadline=None)  # a time limit is lost on a loaded machine, whatever the code does
    settings.load_profile("busy")
    os.environ.setdefault("HYPOTHESIS_STORAGE_DIRECTORY", str(PROJECT / ".hypothesis"))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out of each ring and heavy group what the commit in PREFLIGHT_SAMPLE does not draw; without it all run."""
    commit = os.environ.get("PREFLIGHT_SAMPLE", "")
    groups: dict[tuple[str, tuple[str, ...], int], list[str]] = defaultdict(list)
    for item in items if commit else ():
        rings = tuple(ring for ring in RINGS if item.get_closest_marker(ring))
        if mark := item.get_closest_marker("heavy"):
            groups[item.location[0], rings, mark.args[0]].append(item.nodeid)
        elif rings:
            groups["", rings, min(RINGS[ring] for ring in rings)].append(item.nodeid)
    left_out: set[str] = set()
    for (_, _, one_in), names in groups.items():
        left_out |= set(names) - drawn(names, one_in, commit)
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid in left_out])
    items[:] = [item for item in items if item.nodeid not in left_out]


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
