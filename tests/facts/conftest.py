"""Directories that checkpoints go to, for the tests of the storage probe."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.netns import can_mount, mounted_tmpfs


@pytest.fixture
def place() -> Iterator[Path]:
    """Return an empty directory in memory: a loaded machine's disk takes what time it likes to flush."""
    in_memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="preflight-test-", dir=in_memory) as folder:
        yield Path(folder)


@pytest.fixture
def tmpfs(need: Callable[[str, bool, str], None], tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    """Return a function that mounts a tmpfs with these options; it is unmounted afterwards."""
    need("mount", can_mount(), "file systems can be mounted only by root")
    with ExitStack() as stack:
        yield lambda options: stack.enter_context(mounted_tmpfs(tmp_path / "mounted", options))


@pytest.fixture
def compiler(need: Callable[[str, bool, str], None]) -> None:
    need("gcc", shutil.which("gcc") is not None, "the stand-in for a bad directory is written in C: install gcc")
