"""`python -m preflight.trial.nodes.storage_probe`: write a file, and read another node's file.

The program removes its file when the launcher asks for the removal, or when the launcher is gone.
"""
# This program is a child of the launcher.

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import time
from typing import Any

from preflight.system.child import answer_questions
from preflight.system.processes import outlive_parent
from preflight.system.storage_file import reason

BLOCK_BYTES = 4 << 20
SHARE_OF_FREE = 10  # at most a tenth of the free space, all files together
LOOK_AGAIN_S = 0.05
READ_ONLY = frozenset({errno.EROFS, errno.EACCES, errno.EPERM})

Json = Any


def write(asked: Json, written: set[str]) -> Json:
    """Write and fsync the file `asked["name"]` of this node, and add its path to `written`.

    Return the size, the checksum and the write time of the file, or the reason for a failure.
    """
    path = os.path.join(asked["directory"], asked["name"])
    try:
        room = os.statvfs(asked["directory"])
        free_bytes = room.f_bavail * room.f_frsize
        size_bytes = int(min(asked["size_bytes"], free_bytes // SHARE_OF_FREE // asked["nodes"]))
        if size_bytes < BLOCK_BYTES:
            return {"problem": "there is no room for a test: at most a tenth of what is free is used"}
        written.add(path)
        return _write(path, size_bytes, float(asked["work_s"]))
    except OSError as error:
        return {"problem": f"it can't be written: {reason(error)}", "is_read_only": error.errno in READ_ONLY}


def _write(path: str, size_bytes: int, work_s: float) -> Json:
    checksum, done, since = hashlib.sha256(), 0, time.monotonic()
    block = os.urandom(BLOCK_BYTES)  # what compresses would be faster than a checkpoint
    hashing_s = 0.0
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    try:
        while done + BLOCK_BYTES <= size_bytes and (not done or time.monotonic() - since < work_s):
            view = memoryview(block)
            while view:
                view = view[os.write(fd, view) :]
            before = time.monotonic()
            checksum.update(block)
            hashing_s += time.monotonic() - before
            done += BLOCK_BYTES
        os.fsync(fd)
    finally:
        os.close(fd)
    took_s = time.monotonic() - since - hashing_s
    return {"done_bytes": done, "took_s": took_s, "checksum": checksum.hexdigest()}


def read(asked: Json, _: set[str]) -> Json:
    """Read another node's file until its checksum is right or the time is over, and return the last result."""
    path = os.path.join(asked["directory"], asked["name"])
    since = time.monotonic()
    while True:
        found = _read_once(path)
        waited_s = time.monotonic() - since
        if found.get("checksum") == asked["checksum"] or waited_s > float(asked["appear_s"]):
            return found | {"waited_s": waited_s - found.get("whole_s", 0.0)}
        time.sleep(LOOK_AGAIN_S)


def _read_once(path: str) -> dict[str, Json]:
    checksum, done, hashing_s, since = hashlib.sha256(), 0, 0.0, time.monotonic()
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        is_missing = error.errno in (errno.ENOENT, errno.ENOTDIR)
        return {"problem": f"it can't be read: {reason(error)}", "is_missing": is_missing}
    try:
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        while data := os.read(fd, BLOCK_BYTES):
            before = time.monotonic()
            checksum.update(data)
            hashing_s += time.monotonic() - before
            done += len(data)
    except OSError as error:
        return {"problem": f"it can't be read: {reason(error)}"}
    finally:
        os.close(fd)
    whole_s = time.monotonic() - since
    return {
        "done_bytes": done, "took_s": whole_s - hashing_s, "whole_s": whole_s, "checksum": checksum.hexdigest(),
    }  # fmt: skip


def sweep(_: Json, written: set[str]) -> Json:
    """Remove the files in `written`, and empty this set."""
    for path in written:
        with contextlib.suppress(OSError):
            os.unlink(path)
    written.clear()
    return {}


def main() -> None:
    """Answer the launcher's questions until the launcher closes the connection, and then remove all written files."""
    outlive_parent()
    written: set[str] = set()
    answer_questions(
        {
            "write": lambda asked: write(asked, written),
            "read": lambda asked: read(asked, written),
            "sweep": lambda asked: sweep(asked, written),
        }
    )
    sweep({}, written)
    os._exit(0)


if __name__ == "__main__":
    main()
