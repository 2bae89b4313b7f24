"""Nothing of it needs root, changes a setting of the machine, or leaves a file outside its own places.

Run as root, the test starts the command under another uid, to which the kernel refuses every setting. What it could
have changed all the same, or written where anybody may write, is compared before and after.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cli.simulated import CAPTURES, ENS34, IB_OFF, P2P_OFF
from tests.command import OWN_PATH, Command

NOBODY = 65534
WRITABLE_BY_ALL = ("/tmp", "/var/tmp", "/dev/shm", "/run")
SETTINGS = ("/proc/sys", "/sys/class/net", "/sys/kernel/mm/transparent_hugepage", "/sys/module/nvidia/parameters")
# What moves by itself: counters, random numbers, and what the kernel or another process tunes on the way.
MOVES = ("/random/", "-nr", "/pty/", "ns_last_pid", "_count", "statistics", "state", "/stat", "sched_domain", "entropy")


@pytest.fixture
def unprivileged(need: Callable[[str, bool, str], None]) -> Iterator[Command]:
    """Yield a command in a place of its own that any uid may enter."""
    need("root", os.getuid() == 0, "only root can start the command under another uid")
    need("readable", _can_run_as_nobody(), "another uid can't read this Python or this tree")
    folder = Path(tempfile.mkdtemp(prefix="unprivileged-", dir="/tmp"))
    command = Command(sys.executable, folder)
    for path in (folder, command.cwd, folder / "tmp"):
        path.mkdir(exist_ok=True)
        os.chown(path, NOBODY, NOBODY)
    yield command
    command.kill_all()
    shutil.rmtree(folder)


def _can_run_as_nobody() -> bool:
    ran = subprocess.run(
        [sys.executable, "-c", "import preflight, torch"], user=NOBODY, group=NOBODY, extra_groups=[], check=False,
        cwd="/", env={"PYTHONPATH": OWN_PATH, "PATH": os.environ["PATH"]}, capture_output=True,
    )  # fmt: skip
    return ran.returncode == 0


@pytest.mark.timeout(240)
def test_a_search_with_hangs_needs_no_root_changes_no_setting_and_leaves_nothing(unprivileged: Command) -> None:
    before, files = settings(), files_of_nobody(unprivileged.tmp_path)
    ran = unprivileged.run(
        "check", "--machine", str(CAPTURES / "l20x10_ens34.json"), "--backend", "simnccl@simnccl", "--gpus", "8,9",
        "--stage-limit", "2", env={"SIMNCCL": "hang:via=P2P;error:net=IB;hang:netif=!ens34", "HOME": "/nonexistent"},
        user=NOBODY, group=NOBODY, extra_groups=[], timeout_s=220,
    )  # fmt: skip
    assert ran.code == 0, ran.stdout + ran.stderr
    assert ran.report["advice"]["env"] == {**P2P_OFF, **IB_OFF, **ENS34}
    after = settings()
    assert {
        path: (value, after.get(path)) for path, value in before.items() if path in after and after[path] != value
    } == {}
    assert files_of_nobody(unprivileged.tmp_path) <= files
    assert sorted(path.name for path in unprivileged.cwd.iterdir()) == ["preflight-report.json", "preflight.env"]
    assert unprivileged.run_dirs == []
    assert unprivileged.processes() == {}


def settings() -> dict[str, bytes]:
    """Return what /proc/sys and the interfaces are set to, as far as it does not move by itself."""
    found = {}
    for top in SETTINGS:
        for folder, _, names in os.walk(top, followlinks=top == "/sys/class/net"):
            if folder.count("/") > 8:  # the links of /sys lead in circles
                continue
            for name in names:
                path = os.path.join(folder, name)
                if not any(word in path for word in MOVES):
                    value = _read(path)
                    if value is not None:
                        found[path] = value
    return found


def _read(path: str) -> bytes | None:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        try:
            return os.read(fd, 4096)
        finally:
            os.close(fd)
    except OSError:
        return None


def files_of_nobody(own: Path) -> set[str]:
    """Return the files of that uid wherever anybody may write, but for the test's own folder."""
    found = set()
    for top in WRITABLE_BY_ALL:
        for folder, folders, names in os.walk(top):
            if Path(folder) == own:
                folders.clear()
                continue
            for name in (*names, *folders):
                path = os.path.join(folder, name)
                try:
                    if os.lstat(path).st_uid == NOBODY:
                        found.add(path)
                except OSError:
                    continue
    return found
