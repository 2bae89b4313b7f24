"""The run's own directory: control file, stores, logs and the events FIFO, readable by nobody else."""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile

from preflight.errors import LaunchError
from preflight.model.codec import encode
from preflight.model.facts import NodeFacts

FOLDERS = ("control", "logs", "nccl", "stores", "torchrun")
TORCHRUN_LOG = re.compile(r"[EWIF]\d{4} \d\d:")  # glog's letter, month and day: torchrun on its workers' deaths
# Logs and stores of a run, NCCL's INFO logs above all; a directory with less would fill up in the middle of a trial.
LEAST_FREE_BYTES = 16 << 20
LEAST_FREE_INODES = 1000


def make_run_dir() -> str:
    """Create and return a directory with mode 0700 in TMPDIR, /tmp or /dev/shm, whichever takes it and has room."""
    tried = []
    for parent in dict.fromkeys((tempfile.gettempdir(), "/tmp", "/dev/shm")):
        try:
            lack = _lack_of_room(parent)
            if lack:
                tried.append(f"{parent}: {lack}")
                continue
            path = tempfile.mkdtemp(prefix="preflight-", dir=parent)
        except OSError as error:
            tried.append(f"{parent}: {error.strerror}")
            continue
        try:
            make_folders(path)
            os.mkfifo(events_path(path), 0o600)
        except OSError as error:
            shutil.rmtree(path, ignore_errors=True)
            tried.append(f"{parent}: {error.strerror}")
            continue
        return path
    raise LaunchError(f"no directory for the run's files ({'; '.join(tried)}); set TMPDIR to one that is writable")


def make_folders(path: str) -> None:
    """Make the folders of one phase."""
    for folder in FOLDERS:
        os.mkdir(os.path.join(path, folder), 0o700)


def _lack_of_room(parent: str) -> str:
    """Return what there is too little of for a run's files, "" where there is enough."""
    room = os.statvfs(parent)
    if room.f_bavail * room.f_frsize < LEAST_FREE_BYTES:
        return f"only {room.f_bavail * room.f_frsize >> 20} MiB free, {LEAST_FREE_BYTES >> 20} are needed"
    if room.f_files and room.f_favail < LEAST_FREE_INODES:  # no count of files at all: the system has no limit
        return f"room for only {room.f_favail} more files, {LEAST_FREE_INODES} are needed"
    return ""


def events_path(run_dir: str) -> str:
    """Return the FIFO through which conductor and agent talk to the launcher."""
    return os.path.join(run_dir, "events")


def spec_path(run_dir: str) -> str:
    """Return the file that tells the ranks what to do."""
    return os.path.join(run_dir, "run.json")


def machine_path(run_dir: str) -> str:
    """Return the file with the facts of another machine, where a stand-in backend plays it."""
    return os.path.join(run_dir, "machine.json")


def write_machine(run_dir: str, node: NodeFacts, gpus: tuple[int, ...]) -> None:
    """Write the facts as reports have them, and the numbers of the GPUs that the ranks stand for."""
    try:
        with open(machine_path(run_dir), "w", encoding="utf-8") as file:
            json.dump({"node": encode(node), "gpus": list(gpus)}, file)
    except OSError as error:
        raise LaunchError(f"{machine_path(run_dir)}: could not be written: {error.strerror}") from None


def remove_run_dir(run_dir: str) -> None:
    """Remove the directory and everything in it."""
    shutil.rmtree(run_dir, ignore_errors=True)


def last_words(run_dir: str) -> str:
    """Return the last error that the torchrun logs hold, else their last line: the best reason at hand for a death."""
    logs = [
        os.path.join(folder, name) for folder, _, names in os.walk(os.path.join(run_dir, "torchrun")) for name in names
    ]
    lines = [line for path in sorted(logs, key=os.path.getmtime) for line in _last_lines(path)]
    own = [line for line in lines if not TORCHRUN_LOG.match(line)]
    errors = [line for line in own if "Error" in line]
    return (errors or own or lines or [""])[-1][:300]


def _last_lines(path: str) -> list[str]:
    with open(path, encoding="utf-8", errors="backslashreplace") as file:
        return [line.strip() for line in file.read()[-20000:].splitlines() if line.strip()]
