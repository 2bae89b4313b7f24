"""Read files that control preflight; only this user or root may have written them."""

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
    """Return the text of the file `path`, which only this user or root can have written.

    UsageError for any other file, and for one larger than `limit`. With `folder` (an open folder's descriptor), `path`
    is the name of a file in it.
    """
    try:
        with opened_own(path, folder) as descriptor:
            data = read_descriptor(descriptor, limit)
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: {why(error)}") from None
    if len(data) > limit.most_bytes:
        raise UsageError(f"{path}: {limit.too_large()}")
    return as_text(data)


def newest_first(folder: int) -> list[tuple[str, int]]:
    """Return (name, size in bytes) of the *.json files in the open folder `folder`, the newest first.

    Links are left out; beyond MOST_NAMES the list is partial.
    """
    found = []
    with os.scandir(folder) as entries:
        for entry in islice(entries, MOST_NAMES):
            with contextlib.suppress(FileNotFoundError):  # gone meanwhile
                if entry.name.endswith(".json") and stat.S_ISREG((now := entry.stat(follow_symlinks=False)).st_mode):
                    found.append((now.st_mtime_ns, entry.name, now.st_size))
    return [(name, size) for _, name, size in sorted(found, reverse=True)]
