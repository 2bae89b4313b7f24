"""A test file in a checkpoint directory, which a writer process writes and reads without the page cache."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import mmap
import os
import stat
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from preflight.errors import UnreadableFact, UsageError
from preflight.system.machine import Json

BLOCK_BYTES = 4 << 20  # large enough that the medium decides, not the call
RECORD_BYTES = 128 << 10  # ZFS's record: each is made different, so that nothing is stored once for all
SYNC_BYTES = 64 << 20  # without O_DIRECT: what the cache may hold before it is flushed
REPORT_S = 0.01  # a report a block would take a core from fast storage
MODE = 0o600
NO_TMPFILE = frozenset({errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT, errno.EINVAL, errno.ENOSYS})
KINDS = (
    (stat.S_ISREG, "a file"),
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)

Report = Callable[[int], None]


def look_at(directory: str) -> Json:
    """Return `{path, free_bytes}`: the real path of `directory`, and its free space for an ordinary user.

    Raise UsageError if `directory` does not exist or is not a directory.
    """
    # A symbolic link is followed.
    if "\0" in directory:
        raise UsageError(f"{directory!r}: no path holds a NUL byte")
    path = os.path.realpath(directory)
    subject = f"{directory}: a symbolic link to {path}, which is" if os.path.islink(directory) else f"{directory}:"
    try:
        mode = os.stat(directory).st_mode
    except (FileNotFoundError, NotADirectoryError):
        raise UsageError(f"{subject} not there; make the directory first") from None
    except OSError as error:
        raise UnreadableFact(f"{directory}: {reason(error)}") from None
    if not stat.S_ISDIR(mode):
        kind = next((name for is_kind, name in KINDS if is_kind(mode)), "something else")
        raise UsageError(f"{subject} {kind}, not a directory")
    room = os.statvfs(directory)
    return {"path": path, "free_bytes": room.f_bavail * room.f_frsize}


def reason(error: OSError) -> str:
    """Return the operating system's text for an error, without the error number."""
    text = os.strerror(error.errno) if error.errno else str(error)
    return text[:1].lower() + text[1:]


@dataclass(slots=True)
class StorageFile:
    """A file without a name. The kernel frees the file when the process ends, even after a crash."""

    # If the file system does not support unnamed files, the file has a name for a moment after its creation.

    directory: str
    name: str  # for that instant
    fd: int = -1
    is_direct: bool = True  # O_DIRECT works here
    written_bytes: int = 0
    block: mmap.mmap = field(default_factory=lambda: mmap.mmap(-1, BLOCK_BYTES))  # aligned, as O_DIRECT demands; none
    # of its pages exist before they are written to

    def write(self, size_bytes: int, stop_at: float, report: Report) -> Json:
        """Write and fsync a new file of `size_bytes`, but stop early at `stop_at` (monotonic seconds).

        Return `{done_bytes, start, end, is_direct}`.
        """
        # At least one block is written. `is_direct` is false if O_DIRECT did not work. `report` receives the number of
        # bytes written so far.
        self.close()
        self._open()
        self.block[:] = os.urandom(BLOCK_BYTES)  # what compresses would be faster than a checkpoint
        start = time.monotonic()
        done = self._each_block(size_bytes, stop_at, self._write_block, report)
        os.fsync(self.fd)
        end = time.monotonic()
        self.written_bytes = done
        return {"done_bytes": done, "start": start, "end": end, "is_direct": self.is_direct}

    def read(self, stop_at: float, report: Report) -> Json:
        """Read the written data until `stop_at`, and return the same values as `write`.

        At least one block is read. Raise UnreadableFact if the data differ from the written data.
        """
        if not self.is_direct:
            os.posix_fadvise(self.fd, 0, 0, os.POSIX_FADV_DONTNEED)
        start = time.monotonic()
        done = self._each_block(self.written_bytes, stop_at, self._read_block, report)
        return {"done_bytes": done, "start": start, "end": time.monotonic(), "is_direct": self.is_direct}

    def close(self) -> None:
        """Close the file, which frees its space."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def _each_block(self, size_bytes: int, stop_at: float, step: Callable[[int], int], report: Report) -> int:
        done, reported_at = 0, time.monotonic()
        while done < size_bytes and (done < BLOCK_BYTES or time.monotonic() < stop_at):
            done += step(done)
            if time.monotonic() - reported_at >= REPORT_S:
                reported_at = time.monotonic()
                report(done)
        return done

    def _write_block(self, offset: int) -> int:
        for place in range(0, BLOCK_BYTES, RECORD_BYTES):
            struct.pack_into("<Q", self.block, place, offset + place)
        try:
            done = os.pwrite(self.fd, self.block, offset)
        except OSError as error:
            if error.errno != errno.EINVAL or offset or not self.is_direct:
                raise
            self.is_direct = False  # opened with it, but refuses to write: some network and user-space file systems
            fcntl.fcntl(self.fd, fcntl.F_SETFL, fcntl.fcntl(self.fd, fcntl.F_GETFL) & ~os.O_DIRECT)
            done = os.pwrite(self.fd, self.block, offset)
        if done < BLOCK_BYTES:  # the room ends within the block
            raise OSError(errno.ENOSPC, "")
        if not self.is_direct and (offset + done) % SYNC_BYTES == 0:
            os.fdatasync(self.fd)
        return done

    def _read_block(self, offset: int) -> int:
        done = os.preadv(self.fd, [self.block], offset)
        if done < BLOCK_BYTES or struct.unpack_from("<Q", self.block)[0] != offset:
            raise UnreadableFact(f"what was read at byte {offset} is not what was written there")
        return done

    def _open(self) -> None:
        folder = os.open(self.directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self.is_direct = True
        try:
            self.fd = self._nameless(folder, os.O_DIRECT)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            self.is_direct = False
            self.fd = self._nameless(folder, 0)
        finally:
            os.close(folder)

    def _nameless(self, folder: int, flags: int) -> int:
        flags |= os.O_RDWR | os.O_CLOEXEC
        try:
            return os.open(".", flags | os.O_TMPFILE, MODE, dir_fd=folder)
        except OSError as error:
            if error.errno not in NO_TMPFILE:
                raise
        try:
            return os.open(self.name, flags | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, MODE, dir_fd=folder)
        finally:  # also where it failed: a file system without O_DIRECT creates the file and then refuses to open it
            self._unlink(folder)

    def _unlink(self, folder: int) -> None:
        try:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.name, dir_fd=folder)
        except OSError as error:
            raise UnreadableFact(f"{self.name} was left there: it could not be removed: {reason(error)}") from None
