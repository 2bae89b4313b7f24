"""Be woken when files appear in a directory (inotify), where the kernel has a watch to spare."""

from __future__ import annotations

import contextlib
import ctypes
import os

IN_CREATE, IN_MOVED_TO = 0x100, 0x80  # linux/inotify.h
_libc = ctypes.CDLL(None, use_errno=True)


class DirectoryWatch:
    """Readable when something has appeared; `fds` is empty where there is no watch: then look now and then."""

    def __init__(self, path: str) -> None:
        self._fd = _libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._fd >= 0 and _libc.inotify_add_watch(self._fd, os.fsencode(path), IN_CREATE | IN_MOVED_TO) < 0:
            self.close()

    @property
    def fds(self) -> tuple[int, ...]:
        return (self._fd,) if self._fd >= 0 else ()

    def drain(self) -> None:
        """Forget what woke us: the directory itself is read anyway."""
        for fd in self.fds:
            with contextlib.suppress(BlockingIOError):
                while os.read(fd, 1 << 14):
                    pass

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
