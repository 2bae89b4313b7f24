"""Keep the beginning and the end of one output stream of the job, in files of mode 0600."""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import shutil
import stat

from preflight.job.say import say

HEAD_BYTES, TAIL_BYTES = 16 << 20, 24 << 20  # kept of a stream: the head, and once or twice the tail
PRIVATE = 0o600
OPEN_OWN = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
WRITTEN, ROOM, TAILS, IN_LINE = range(4)


class Kept:
    """The beginning and the end of an output stream of the job, in files.

    The job continues if the output can't be kept.
    """

    # The counters are shared with processes that are forked later. If a forked process is killed, another process
    # continues with `take_over`.

    def __init__(self, path: str, head_bytes: int = HEAD_BYTES, tail_bytes: int = TAIL_BYTES) -> None:
        self.path = path
        self.file = -1
        self._tail_bytes = tail_bytes
        self._counts = memoryview(mmap.mmap(-1, mmap.PAGESIZE)).cast("Q")
        self._counts[ROOM] = head_bytes
        try:
            self.file = create(path) if path else -1
        except OSError as error:
            say(f"{path}: {error.strerror}; this output of the job is not kept")
        self.is_kept = self.file >= 0

    @property
    def written(self) -> int:
        """Return how many bytes the job has written to the stream."""
        return self._counts[WRITTEN]

    @property
    def ends_line(self) -> bool:
        """Return whether the job's output ends with a complete line."""
        return not self._counts[IN_LINE]

    def take_over(self) -> None:
        """Continue to keep the output in place of another process that was killed."""
        if self._counts[TAILS]:
            self._close()
            with contextlib.suppress(OSError):
                self.file = os.open(self.path + ".end", os.O_WRONLY | os.O_APPEND | OPEN_OWN)

    def add(self, data: bytes) -> None:
        """Keep a piece of output. If the disk is full, the piece is lost, but the job continues."""
        self._counts[WRITTEN] += len(data)
        self._counts[IN_LINE] = not data.endswith(b"\n")
        with contextlib.suppress(OSError):
            if self.file < 0:
                return
            if len(data) > self._counts[ROOM]:
                self._next_file()
            self._counts[ROOM] = max(0, self._counts[ROOM] - len(data))
            os.write(self.file, data)

    def last(self, most_bytes: int) -> bytes:
        """Return at most `most_bytes` from the end of the kept output, or b"" if the output can't be read."""
        with contextlib.suppress(OSError):
            file = os.open(self.path + (".end" if self._counts[TAILS] else ""), os.O_RDONLY | OPEN_OWN)
            try:
                return os.pread(file, most_bytes, max(0, os.fstat(file).st_size - most_bytes))
            finally:
                os.close(file)
        return b""

    def finish(self) -> None:
        """Join the beginning and the end of the output in one file.

        If some output was left out, a line between the two parts says so.
        """
        self._close()
        if not self.is_kept:
            return
        parts = [self.path + end for end in (".before", ".end") if os.path.exists(self.path + end)]
        with contextlib.suppress(OSError), open(self.path, "ab") as whole:
            left_out = self.written - sum(os.path.getsize(part) for part in [self.path, *parts])
            if left_out > 0:
                whole.write(b"\n[preflight: %d bytes were not kept]\n" % left_out)
            for part in parts:
                with open(part, "rb") as file:
                    shutil.copyfileobj(file, whole)
        for part in parts:
            with contextlib.suppress(OSError):
                os.unlink(part)

    def _next_file(self) -> None:
        self._close()
        if self._counts[TAILS]:
            os.replace(self.path + ".end", self.path + ".before")
        self.file = create(self.path + ".end")
        self._counts[TAILS] += 1
        self._counts[ROOM] = self._tail_bytes

    def _close(self) -> None:
        descriptor, self.file = self.file, -1  # at once: the number may be another file's the next moment
        if descriptor >= 0:
            with contextlib.suppress(OSError):
                os.close(descriptor)


def create(path: str) -> int:
    """Create the file `path` or empty an existing regular file, and return the descriptor.

    Raise OSError for a link, another kind of file, or a failure.
    """
    # The function does not wait for the reader of a FIFO.
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | OPEN_OWN
    descriptor = os.open(path, flags, PRIVATE)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "no regular file")
    return descriptor
