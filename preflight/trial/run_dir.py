"""The directory of a run: control files, stores, logs and the events FIFO. Other users can't read this directory."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import re
import shutil
import stat
import tempfile
from pathlib import Path
from typing import Any

from preflight.errors import LaunchError
from preflight.model.codec import encode
from preflight.model.facts import NodeFacts
from preflight.model.run_spec import RunSpec, joint_dir
from preflight.system.ownership import own_folders

FOLDERS = ("control", "logs", "nccl", "stores", "torchrun")
TORCHRUN_LOG = re.compile(r"[EWIF]\d{4} \d\d:")  # glog's letter, month and day: torchrun on its workers' deaths
# Logs and stores of a run, NCCL's INFO logs above all; a directory with less would fill up in the middle of a trial.
LEAST_FREE_BYTES = 16 << 20
LEAST_FREE_INODES = 1000
NAME = "preflight-"


def make_run_dir() -> str:
    """Create and return a directory with mode 0700, in the first of TMPDIR, /tmp and /dev/shm that has room."""
    tried = []
    for parent in dict.fromkeys((tempfile.gettempdir(), "/tmp", "/dev/shm")):
        path = ""
        try:
            _refuse_without_room(parent)
            path = tempfile.mkdtemp(prefix=NAME, dir=parent)
            make_folders(path)
            _refuse_without_locks(path)
            for fifo in (events_path(path), lifeline_path(path)):
                os.mkfifo(fifo, 0o600)
        except OSError as error:
            shutil.rmtree(path, ignore_errors=True)
            tried.append(f"{os.fsencode(parent).decode('utf-8', 'backslashreplace')}: {error.strerror}")
        else:
            return path
    raise LaunchError(f"no directory for the run's files ({'; '.join(tried)}); set TMPDIR to one that is writable")


def remove_old_run_dirs() -> None:
    """Remove this user's folders of runs that ended at least a week ago, except folders that `--keep` kept."""
    for path, is_old in own_folders(tempfile.gettempdir(), NAME):
        if is_old and _has_ended(path):
            shutil.rmtree(path, ignore_errors=True)


def _has_ended(path: str) -> bool:
    """Return whether a folder belongs to a run that has ended.

    A run has ended if no launcher holds the run's lifeline (a FIFO) open.
    """
    try:
        if not stat.S_ISFIFO(os.lstat(lifeline_path(path)).st_mode):
            return False
        os.close(os.open(lifeline_path(path), os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC))
    except OSError as error:
        return error.errno == errno.ENXIO
    return False


def make_folders(path: str) -> None:
    """Create the folder `path` with the folders that one phase of a run needs."""
    for folder in FOLDERS:
        os.mkdir(os.path.join(path, folder), 0o700)


def make_joint_dir(run_dir: str) -> None:
    """Create the folders for the test runs on all nodes, before any process writes into these folders."""
    os.mkdir(joint_dir(run_dir), 0o700)
    make_folders(joint_dir(run_dir))


def readable(path: str) -> str:
    r"""Return a path as text; bytes that are not UTF-8 become `\xff`."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def _refuse_without_locks(path: str) -> None:
    """Raise OSError if files below `path` can't be locked, as on Lustre with `noflock`.

    torch's FileStore has to lock its file.
    """
    with open(os.path.join(path, "stores", "lock"), "wb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise OSError(error.errno, f"files can't be locked there: {error.strerror}") from None


def _refuse_without_room(parent: str) -> None:
    """Raise OSError if the directory `parent` is not suitable for the files of a run.

    The directory must have enough space and enough inodes. Its name must be one that torch can use.
    """
    if not parent.isprintable():  # surrogates of bytes that are no UTF-8 are not: torch and JSON refuse such a path
        raise OSError(errno.EILSEQ, "its name is not plain UTF-8")
    room = os.statvfs(parent)
    free_bytes = room.f_bavail * room.f_frsize
    if free_bytes < LEAST_FREE_BYTES:
        raise OSError(errno.ENOSPC, f"only {free_bytes >> 20} MiB free, {LEAST_FREE_BYTES >> 20} are needed")
    if room.f_files and room.f_favail < LEAST_FREE_INODES:  # no count of files at all: the system has no limit
        raise OSError(errno.ENOSPC, f"room for only {room.f_favail} more files, {LEAST_FREE_INODES} are needed")


def events_path(run_dir: str) -> str:
    """Return the path of the FIFO through which the coordinator and the agent report to the launcher."""
    return os.path.join(run_dir, "events")


def lifeline_path(run_dir: str) -> str:
    """Return the path of the FIFO that the launcher holds open.

    If the launcher dies, the child processes of the test runs die too (processes.stop_with_parent).
    """
    return os.path.join(run_dir, "lifeline")


def agent_log_path(run_dir: str) -> str:
    """Return the path of the file with the output of the agent (the process that starts the ranks)."""
    return os.path.join(run_dir, "torchrun", "agent.log")


def spec_path(run_dir: str) -> str:
    """Return the path of the file with the ranks' specification."""
    return os.path.join(run_dir, "run.json")


def machine_path(run_dir: str) -> str:
    """Return the path of the file that describes a simulated machine."""
    return os.path.join(run_dir, "machine.json")


def write_spec(spec: RunSpec) -> None:
    """Write `spec` to its run directory in one step, so that waiting ranks never read an incomplete file."""
    _write(spec_path(spec.run_dir), encode(spec))


def write_machine(run_dir: str, node: NodeFacts, gpus: tuple[int, ...]) -> None:
    """Write the description of a simulated machine, and the indices of the ranks' GPUs, to the run directory."""
    _write(machine_path(run_dir), {"node": encode(node), "gpus": list(gpus)})


def _write(path: str, document: dict[str, Any]) -> None:
    try:
        with open(f"{path}.new", "w", encoding="utf-8") as file:
            json.dump(document, file)
        os.rename(f"{path}.new", path)
    except OSError as error:
        raise LaunchError(f"{path}: could not be written: {error.strerror}") from None


def keep_run_dir(run_dir: str) -> None:
    """Keep the directory of an ended run until a person removes the directory."""
    with contextlib.suppress(OSError):
        os.unlink(lifeline_path(run_dir))


def remove_run_dir(run_dir: str) -> None:
    """Remove the directory `run_dir` and everything in it."""
    shutil.rmtree(run_dir, ignore_errors=True)


def last_words(run_dir: str) -> str:
    """Return the last error in the torchrun logs, or else their last line, or "" if there are no logs."""
    logs = [path for path in Path(run_dir, "torchrun").rglob("*") if path.is_file()]
    lines = [line for path in sorted(logs, key=os.path.getmtime) for line in _last_lines(path)]
    own = [line for line in lines if not TORCHRUN_LOG.match(line)]
    pairs = zip(own, [*own[1:], ""], strict=False)  # torch begins some messages on the line behind the error's name
    errors = [f"{line} {then}".strip() if line.endswith("Error:") else line for line, then in pairs if "Error" in line]
    return (errors or own or lines or [""])[-1][:300]


def _last_lines(path: Path) -> list[str]:
    text = path.read_text(encoding="utf-8", errors="backslashreplace")
    return [line.strip() for line in text[-20000:].splitlines() if line.strip()]
