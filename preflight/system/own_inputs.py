"""Read files that control preflight, if only this user or root can write these files."""

from __future__ import annotations

import contextlib
import os
import stat
from itertools import islice

from preflight.errors import UsageError
from preflight.model.input_limits import InputLimit
from preflight.system.files import why
from preflight.system.inputs import as_text, read_descriptor
from preflight.system.ownership import opened_own

MOST_NAMES = 100_000  # of a folder: half a second


def read_own_input(path: str, limit: InputLimit, folder: int | None = None) -> str:
    """Return the text of the file `path`, if only this user or root can write the file.

    Raise UsageError for any other file, and for a file larger than `limit`.
    """
    # If `folder` (an open folder's descriptor) is given, `path` is the name of a file in this folder.
    try:
        with opened_own(path, folder) as descriptor:
            data = read_descriptor(descriptor, limit)
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: {why(error)}") from None
    if len(data) > limit.most_bytes:
        raise UsageError(f"{path}: {limit.too_large()}")
    return as_text(data)


def newest_first(folder: int) -> list[tuple[str, int]]:
    """Return (name, size in bytes) of each *.json file in the open folder, the newest file first.

    Links are left out.
    """
    # At most MOST_NAMES entries of the folder are read.
    found = []
    with os.scandir(folder) as entries:
        for entry in islice(entries, MOST_NAMES):
            with contextlib.suppress(FileNotFoundError):  # gone meanwhile
                if entry.name.endswith(".json") and stat.S_ISREG((now := entry.stat(follow_symlinks=False)).st_mode):
                    found.append((now.st_mtime_ns, entry.name, now.st_size))
    return [(name, size) for _, name, size in sorted(found, reverse=True)]
