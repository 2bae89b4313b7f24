"""Check the ownership of files: preflight must not trust a file that another user can write.

This module must import only small modules, because `preflight run` loads it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import time
from collections.abc import Iterator

KEPT_S = 7 * 24 * 3600.0  # how long the files of a failed run stay in the temporary folder


def own_folders(place: str, prefix: str) -> Iterator[tuple[str, bool]]:
    """Yield (path, is_old) for each of this user's folders in `place` whose name begins with `prefix`.

    `is_old` is true if the folder was not changed for KEPT_S seconds.
    """
    with contextlib.suppress(OSError), os.scandir(place) as entries:
        for entry in entries:
            if not entry.name.startswith(prefix):
                continue
            with contextlib.suppress(OSError):  # gone meanwhile
                status = entry.stat(follow_symlinks=False)
                if stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid():
                    yield entry.path, time.time() - status.st_mtime > KEPT_S


@contextlib.contextmanager
def opened_own(path: str, folder: int | None = None, *, is_folder: bool = False) -> Iterator[int]:
    """Open a file or folder that only this user or root can write, and yield its descriptor.

    Raise OSError if another user can write the file or folder.
    """
    descriptor = open_own(path, folder, is_folder=is_folder)
    try:
        if others_may_write(descriptor):
            raise PermissionError(errno.EACCES, "other users may write it")
        yield descriptor
    finally:
        os.close(descriptor)


def open_own(path: str, folder: int | None = None, *, is_folder: bool = False) -> int:
    """Open a file or folder that this user or root owns, for reading, and return the descriptor.

    Raise OSError for anything else.
    """
    # With `folder` (the descriptor of an open folder), `path` is a name in this folder and must not be a link.
    link = 0 if folder is None else os.O_NOFOLLOW
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY | link, dir_fd=folder)
    status = os.fstat(descriptor)
    if stat.S_IFMT(status.st_mode) != (stat.S_IFDIR if is_folder else stat.S_IFREG):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is no folder" if is_folder else "it is no regular file")
    if status.st_uid not in (os.geteuid(), 0):
        os.close(descriptor)
        raise OSError(errno.EACCES, f"it belongs to another user (uid {status.st_uid})")
    return descriptor


def others_may_write(descriptor: int) -> bool:
    """Return whether a user other than the owner may write the open file.

    A group with the same number as the owner counts as the owner.
    """
    status = os.fstat(descriptor)
    to_group = status.st_mode & stat.S_IWGRP and status.st_gid != status.st_uid
    return bool(to_group or status.st_mode & stat.S_IWOTH)
