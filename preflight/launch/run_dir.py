"""The run's own directory: control file, stores, logs and the events FIFO, readable by nobody else."""

from __future__ import annotations

import os
import shutil
import tempfile

from preflight.errors import LaunchError

FOLDERS = ("control", "logs", "nccl", "stores", "torchrun")


def make_run_dir() -> str:
    """Create and return a directory with mode 0700 in TMPDIR, /tmp or /dev/shm, whichever takes it."""
    tried = []
    for parent in dict.fromkeys((tempfile.gettempdir(), "/tmp", "/dev/shm")):
        try:
            path = tempfile.mkdtemp(prefix="preflight-", dir=parent)
        except OSError as error:
            tried.append(f"{parent}: {error.strerror}")
            continue
        try:
            for folder in FOLDERS:
                os.mkdir(os.path.join(path, folder), 0o700)
            os.mkfifo(events_path(path), 0o600)
        except OSError as error:
            shutil.rmtree(path, ignore_errors=True)
            tried.append(f"{parent}: {error.strerror}")
            continue
        return path
    raise LaunchError(f"no directory for the run's files ({'; '.join(tried)}); set TMPDIR to one that is writable")


def events_path(run_dir: str) -> str:
    """Return the FIFO through which conductor and agent talk to the launcher."""
    return os.path.join(run_dir, "events")


def spec_path(run_dir: str) -> str:
    """Return the file that tells the ranks what to do."""
    return os.path.join(run_dir, "run.json")


def remove_run_dir(run_dir: str) -> None:
    """Remove the directory and everything in it."""
    shutil.rmtree(run_dir, ignore_errors=True)


def last_words(run_dir: str) -> str:
    """Return the last line that anything wrote to the torchrun logs: the best reason at hand for a death."""
    newest = ""
    logs = [
        os.path.join(folder, name) for folder, _, names in os.walk(os.path.join(run_dir, "torchrun")) for name in names
    ]
    for path in sorted(logs, key=os.path.getmtime):
        with open(path, encoding="utf-8", errors="backslashreplace") as file:
            lines = [line.strip() for line in file.read()[-20000:].splitlines() if line.strip()]
        errors = [line for line in lines if "Error" in line and not line.startswith(("W", "E1"))]
        newest = (errors or [newest])[-1]
    return newest[:300]
