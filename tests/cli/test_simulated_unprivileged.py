"""Nothing of it needs root, changes a setting of the machine, or leaves a file outside its own places.

Run as root, the test starts the command under another uid, to which the kernel refuses every setting. What it could
have changed all the same, or written where anybody may write, is compared before and after.
"""

from __future__ import annotations

import glob
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.cli.simulated import CAPTURES, ENS34, HANG_LIMIT_S, IB_OFF, P2P_OFF
from tests.command import OWN_PATH, Command

OWN_UID = 40000 + os.getpid() % 20000  # whose files are this test's alone
FAULTS = "hang:via=P2P;error:net=IB;hang:netif=!ens34"
WRITABLE_BY_ALL = ("/tmp", "/var/tmp", "/dev/shm", "/run")
SETTINGS = ("/proc/sys/kernel", "/proc/sys/vm", "/proc/sys/net", "/proc/sys/fs")
INTERFACES = "/sys/class/net/*/{}"
# What moves by itself: counters, random numbers, and what the kernel or another process tunes on the way.
MOVES = ("/random/", "-nr", "/pty/", "ns_last_pid", "_count", "statistics", "state", "/stat", "sched_domain", "entropy")


# In a mount namespace of its own the Python gets a place that any uid may enter: root's home is often closed.
BY_ANY = f'mount --bind "$1" "$2" && shift 2 && exec setpriv --reuid {OWN_UID} --regid {OWN_UID} --clear-groups "$@"'


@dataclass(frozen=True, slots=True)
class Unprivileged:
    """The command for another uid, and what runs it."""

    command: Command
    prefix: tuple[str, ...]
    path: str


@pytest.fixture
def unprivileged(need: Callable[[str, bool, str], None]) -> Iterator[Unprivileged]:
    """Yield a command in a place of its own that any uid may enter."""
    need("root", os.getuid() == 0, "only root can start the command under another uid")
    need("setpriv", shutil.which("setpriv") is not None, "setpriv is not there")
    folder = Path(tempfile.mkdtemp(prefix="unprivileged-", dir="/tmp"))
    python = folder / "python"
    command = Command(str(python / "bin" / Path(os.path.realpath(sys.executable)).name), folder)
    for path in (folder, python, command.cwd, folder / "tmp"):
        path.mkdir(exist_ok=True)
        os.chown(path, OWN_UID, OWN_UID)
    prefix = ("unshare", "--mount", "sh", "-c", BY_ANY, "sh", sys.base_prefix, str(python))
    made = Unprivileged(command, prefix, os.pathsep.join((OWN_PATH, sysconfig.get_path("purelib"))))
    try:
        why = _why_not(made)
        need("readable", not why, f"another uid can't run this Python on this tree: {why}")
        yield made
    finally:
        command.kill_all()
        shutil.rmtree(folder)


def _why_not(made: Unprivileged) -> str:
    again = "import preflight, subprocess, sys, torch; sys.exit(subprocess.call([sys.executable, '-c', 'pass']))"
    argv = [*made.prefix, made.command.python, "-c", again]
    environ = {"PYTHONPATH": made.path, "PATH": os.environ["PATH"]}
    ran = subprocess.run(argv, cwd="/", env=environ, capture_output=True, text=True, check=False)
    return "" if ran.returncode == 0 else ((ran.stderr.strip() or "?").splitlines()[-1])


@pytest.mark.integration
@pytest.mark.timeout(240)
def test_a_search_with_hangs_needs_no_root_changes_no_setting_and_leaves_nothing(unprivileged: Unprivileged) -> None:
    command = unprivileged.command
    before, files = settings(), files_of_own_uid(command.tmp_path)
    ran = command.run(
        "check", "--machine", str(CAPTURES / "l20x10_ens34.json"), "--backend", "simnccl@simnccl", "--gpus", "8,9",
        "--stage-limit", HANG_LIMIT_S, env={"SIMNCCL": FAULTS, "HOME": "/nonexistent", "PYTHONPATH": unprivileged.path},
        prefix=unprivileged.prefix, timeout_s=220,
    )  # fmt: skip
    assert ran.code == 0, ran.stdout + ran.stderr
    assert ran.report["advice"]["env"] == {**P2P_OFF, **IB_OFF, **ENS34}
    after = settings()
    assert {
        path: (value, after.get(path)) for path, value in before.items() if path in after and after[path] != value
    } == {}
    assert files_of_own_uid(command.tmp_path) <= files
    assert sorted(path.name for path in command.cwd.iterdir()) == ["preflight-report.json", "preflight.env"]
    assert command.run_dirs == []
    assert command.processes() == {}


def settings() -> dict[str, bytes]:
    """Return what /proc/sys and the interfaces are set to, as far as it does not move by itself."""
    paths = [os.path.join(folder, name) for top in SETTINGS for folder, _, names in os.walk(top) for name in names]
    paths += [path for name in ("mtu", "flags", "tx_queue_len") for path in glob.glob(INTERFACES.format(name))]
    read = {path: _read(path) for path in paths if not any(word in path for word in MOVES)}
    return {path: value for path, value in read.items() if value is not None}


def _read(path: str) -> bytes | None:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        try:
            return os.read(fd, 4096)
        finally:
            os.close(fd)
    except OSError:
        return None


def files_of_own_uid(own: Path) -> set[str]:
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
                    if os.lstat(path).st_uid == OWN_UID:
                        found.add(path)
                except OSError:
                    continue
    return found
