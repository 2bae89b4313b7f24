"""The folder that keeps a job's output. The folder is private in TMPDIR, unless `--keep-output` names a folder."""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import shutil
import tempfile
from typing import NamedTuple

from preflight.job.say import say
from preflight.system.ownership import own_folders

NAME = "preflight-job-"
RUNNING = ".running"  # in a private folder, locked while its run lives, and gone when what lies there is to stay


class Folder(NamedTuple):
    """The folder that keeps a job's output. The names of this run's files begin with `prefix`."""

    path: str  # "" if none can be made
    prefix: str = ""
    is_users: bool = False

    def file(self, name: str) -> str:
        """Return the path of this run's file `name`."""
        return os.path.join(self.path, self.prefix + name)

    def stays(self) -> None:
        """Keep a private folder after this run: later runs then do not remove the folder as abandoned."""
        if self.path and not self.is_users:
            with contextlib.suppress(OSError):
                os.unlink(self.file(RUNNING))

    def remove(self) -> None:
        """Remove the folder, unless the user named it with `--keep-output`."""
        if self.path and not self.is_users:
            shutil.rmtree(self.path, ignore_errors=True)


def make_folder(users: str) -> Folder:
    """Return the folder for the job's output.

    `users` is the folder of `--keep-output`, or "". If `users` is not "", return this folder, with a file name prefix
    that no other run uses. If `users` is "", return a new private folder.
    """
    if users:
        return Folder(users, _free_prefix(users), is_users=True)
    path = ""
    try:
        path = tempfile.mkdtemp(prefix=NAME)  # mode 0700
        lock = os.open(os.path.join(path, ".lock"), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX)  # until this process ends
        os.rename(os.path.join(path, ".lock"), os.path.join(path, RUNNING))
    except OSError as error:
        say(f"the job's output is not kept: {error.strerror}" if not path else f"{path}: {error.strerror}")
    return Folder(path)


def remove_abandoned() -> None:
    """Remove this user's private folders that a killed run left, or that are older than a week."""
    for path, is_old in own_folders(tempfile.gettempdir(), NAME):
        with contextlib.suppress(OSError):
            _remove_if_abandoned(path, is_old)


def _remove_if_abandoned(path: str, is_old: bool) -> None:
    try:
        running = os.open(os.path.join(path, RUNNING), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        if is_old:
            shutil.rmtree(path, ignore_errors=True)
        return
    try:
        fcntl.flock(running, fcntl.LOCK_EX | fcntl.LOCK_NB)  # BlockingIOError: its run lives
        shutil.rmtree(path, ignore_errors=True)
    finally:
        os.close(running)


def _free_prefix(folder: str) -> str:
    """Return a prefix of file names that no file in the folder has.

    Several runs and nodes may share the folder.
    """
    host = os.uname().nodename
    for number in itertools.count(1):
        prefix = f"{host}." if number == 1 else f"{host}.{number}."
        if any(os.path.lexists(os.path.join(folder, prefix + name)) for name in ("stderr.log", "ranks")):
            continue
        try:
            os.close(os.open(os.path.join(folder, f"{prefix}stdout.log"), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        except FileExistsError:
            continue
        except OSError:  # whoever writes there says it
            pass
        return prefix
    raise AssertionError("itertools.count ends nowhere")
