"""Wait for events: ready descriptors, and new files in a directory (inotify).

The module also detects time in which this process did not run, for example because of SIGSTOP or a VM migration.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import struct
import time
from collections.abc import Callable

IN_CREATE, IN_MOVED_TO = 0x100, 0x80  # linux/inotify.h
IN_Q_OVERFLOW = 0x4000
EVENT = struct.Struct("iIII")  # watch, mask, cookie, length of the name that follows
_libc = ctypes.CDLL(None, use_errno=True)
GAP_S = 1.0  # a loop that polls every few milliseconds is not as late as this, even on a busy machine


def parse_events(data: bytes) -> list[str] | None:
    """Return the file names in the inotify events `data`, in order, or None if the kernel dropped events."""
    names, start = [], 0
    while start < len(data):
        _, mask, _, length = EVENT.unpack_from(data, start)
        if mask & IN_Q_OVERFLOW:
            return None
        start += EVENT.size
        names.append(os.fsdecode(data[start : start + length].rstrip(b"\0")))
        start += length
    return names


class DirectoryWatch:
    """A watch on a directory. Its descriptor in `fds` becomes readable when a file appears in the directory.

    If `fds` is empty, there is no watch, and the caller must poll the directory.
    """

    def __init__(self, path: str) -> None:
        self._fd = _libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._fd >= 0 and _libc.inotify_add_watch(self._fd, os.fsencode(path), IN_CREATE | IN_MOVED_TO) < 0:
            self.close()

    @property
    def fds(self) -> tuple[int, ...]:
        return (self._fd,) if self._fd >= 0 else ()

    def drain(self) -> list[str] | None:
        """Return the names of the files that have appeared since the last call, or None if they are unknown.

        If the result is None, the caller must list the directory.
        """
        if self._fd < 0:
            return None
        data = b""
        with contextlib.suppress(BlockingIOError):
            while True:
                data += os.read(self._fd, 1 << 16)  # whole events only
        return parse_events(data)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class OwnTime:
    """A clock that leaves out time in which this process did not run. The caller must poll the clock often."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.lost_s = 0.0  # in all
        self._clock = clock
        self._looked_at = clock()

    def look(self, waited_s: float = 0.0) -> float:
        """Return for how many seconds this process did not run since the last call.

        The result is 0 if the process ran as usual. `waited_s` is the time that the process waited on purpose. This
        time does not count.
        """
        # Less than GAP_S seconds count as 0.
        now = self._clock()
        gap_s = now - self._looked_at - waited_s
        self._looked_at = now
        if gap_s < GAP_S:
            return 0.0
        self.lost_s += gap_s
        return gap_s

    def now(self) -> float:
        """Return the clock's time in seconds, without the lost time that `look` has found."""
        return self._clock() - self.lost_s
