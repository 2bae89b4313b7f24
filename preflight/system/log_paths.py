"""Find log files at the paths that a user gives."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from preflight.errors import UsageError
from preflight.system.log_source import STDIN

MOST_FILES = 10_000  # of a folder
MOST_ENTRIES = 200_000  # looked at in a folder
DEEPEST = 12  # folders in a folder
DUMP = "nccl_trace_rank"
# What lies beside logs: the job's own files, its weights, its tables. A source file may hold any message as a text.
OTHER_FILES = re.compile(
    r"\.(?:py|pyc|pyi|ipynb|sh|sbatch|c|cc|cpp|cu|h|hpp|so|js|css|html?|md|rst|ya?ml|toml|ini|cfg|conf|lock|csv|tsv|"
    r"parquet|arrow|npy|npz|pt|pth|ckpt|safetensors|bin|model|distcp|onnx|h5|idx|png|jpe?g|svg|pdf|whl|pid|sock|"
    r"nsys-rep|qdrep|sqlite|db)$",
    re.IGNORECASE,
)
OTHER_FOLDERS = frozenset({"__pycache__", "node_modules", "site-packages", "wandb", "runtime_resources"})
NOT_A_LOG = "by its name no log"
# Folders that gather several runs: Slurm's outputs, torchrun's --log-dir, Ray's /tmp/ray.
RUNS = (
    re.compile(r"(?:^|/)slurm-(\d+)(?:[_.+]|$)"),
    re.compile(r"(?:^|/)([^/]+_[a-z0-9_]{8})/attempt_\d+/"),
    re.compile(r"(?:^|/)(session_\d{4}-\d\d-\d\d_[\d_-]+)/"),
)
DIGITS = re.compile(r"(\d+)")


@dataclass(slots=True)
class LogPaths:
    """The log files in reading order, and the paths that were left out, with the reasons."""

    files: list[str] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)
    in_folders: set[str] = field(default_factory=set)  # those of `files` from folders; one that is no text is no log


def find_logs(paths: Iterable[str]) -> LogPaths:
    """Return the logs at `paths`, which are files, folders, or `-` for stdin.

    Only a folder's newest run counts. Raise UsageError if a path does not exist, or if a folder is empty or can't be
    read.
    """
    # From a folder, at most MOST_FILES files are taken.
    found = LogPaths()
    for path in dict.fromkeys(paths):
        if path == STDIN or not _is_folder(path):
            found.files.append(path)
            continue
        walked = sorted(_walk(path, found.left_out), key=_natural)
        if not walked and not found.left_out:
            raise UsageError(f"{path}: there is no file in it")
        kept = _last_run(walked, found.left_out)
        for late in kept[MOST_FILES:]:
            found.left_out[late] = f"more than {MOST_FILES} files in {path}"
        found.files += kept[:MOST_FILES]
        found.in_folders.update(kept[:MOST_FILES])
    found.files = list(dict.fromkeys(found.files))
    return found


def _is_folder(path: str) -> bool:
    try:
        is_folder = stat.S_ISDIR(os.stat(path).st_mode)
        if is_folder:
            os.listdir(path)
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: can't be read: {getattr(error, 'strerror', None) or error}") from None
    return is_folder


def why_no_member(name: str) -> str:
    """Return why the file `name` in an archive is not a log, or "" if the file may be a log."""
    *folders, file = name.split("/")
    is_hidden = any(part.startswith(".") and part.strip(".") for part in (*folders, file))
    if is_hidden or OTHER_FOLDERS.intersection(folders) or (DUMP not in file and OTHER_FILES.search(file)):
        return NOT_A_LOG
    return ""


def _walk(folder: str, left_out: dict[str, str]) -> Iterator[str]:
    """Yield the files below `folder` that may be logs.

    Links to files are followed, because the logs of pods are links. Links to folders are not followed.
    """

    def unreadable(error: OSError) -> None:
        left_out[str(error.filename)] = f"can't be read: {error.strerror}"

    looked_at = 0
    for here, folders, files in os.walk(folder, onerror=unreadable):
        depth = here.count(os.sep) - folder.rstrip(os.sep).count(os.sep)
        folders[:] = sorted(
            name for name in folders if depth < DEEPEST and name not in OTHER_FOLDERS and not name.startswith(".")
        )
        for name in files:
            looked_at += 1
            if looked_at > MOST_ENTRIES:
                left_out[folder] = f"more than {MOST_ENTRIES} files in it; the rest was not looked at"
                return
            path = os.path.join(here, name)
            why = _why_no_log(path, name)
            if why:
                left_out[path] = why
            elif not name.startswith("."):
                yield path


def _why_no_log(path: str, name: str) -> str:
    """Return why a file in a folder is excluded, or "" if the file may be a log."""
    if DUMP not in name and OTHER_FILES.search(name):
        return NOT_A_LOG
    try:
        is_file = stat.S_ISREG(os.stat(path).st_mode)
    except OSError as error:
        return f"can't be read: {error.strerror}"
    return "" if is_file else "no regular file"


def _last_run(paths: list[str], left_out: dict[str, str]) -> list[str]:
    """Return `paths` without the paths of earlier runs.

    If two runs were read as one, the failure of one run would seem to explain the failure of the other run.
    """
    for pattern in RUNS:
        runs: dict[str, list[str]] = {}
        for path in paths:
            if match := pattern.search(path):
                runs.setdefault(match[1], []).append(path)
        if len(runs) < 2:
            continue
        last = max(runs, key=lambda run: (max(map(_changed_at, runs[run])), _natural(run)))
        earlier = {path: run for run, of_run in runs.items() if run != last for path in of_run}
        left_out.update({path: f"another run ({run}); only the last one is explained" for path, run in earlier.items()})
        paths = [path for path in paths if path not in earlier]
    return paths


def _changed_at(path: str) -> float:
    try:
        return os.stat(path).st_mtime
    except OSError:
        return 0.0


def _natural(path: str) -> tuple[tuple[int, str], ...]:
    """Return a key that sorts rank 10 after rank 9."""
    return tuple((int(part[:18]), part) if part.isdigit() else (-1, part) for part in DIGITS.split(path))
