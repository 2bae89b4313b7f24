"""The job's output: passed on as it comes, and kept, its beginning and its end.

The job writes into a terminal where we have one, and into a pipe otherwise, so that it buffers and colours as it does
without us. Where stdout and stderr are one thing they stay one, in order.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import stat
import termios
import threading
import time
from collections.abc import Callable

from preflight.job.say import say, write_all

HEAD_BYTES, TAIL_BYTES = 16 << 20, 24 << 20  # kept of a stream: the head, and once or twice the tail
PIECE_BYTES = 1 << 16
AFTERWARDS_S = 2.0  # for what a process that outlives the job still holds
PRIVATE = 0o600
NAMES = {1: "stdout", 2: "stderr"}


class Kept:
    """A stream's head and tail in files of mode 0600; whatever can't be kept costs nothing else."""

    def __init__(self, path: str, head_bytes: int = HEAD_BYTES, tail_bytes: int = TAIL_BYTES) -> None:
        self.path = path
        self.written = 0
        self.ends_line = True
        self._lock = threading.Lock()  # who keeps is a thread that may outlive finish()
        self._file = -1
        self._room, self._tail_bytes = head_bytes, tail_bytes
        self._tails = 0
        try:
            self._file = _create(path) if path else -1
        except OSError as error:
            say(f"{path}: {error.strerror}; this output of the job is not kept")
        self.is_kept = self._file >= 0

    def add(self, data: bytes) -> None:
        """Keep a piece; a full disk costs what would have been kept, and not the job."""
        self.written += len(data)
        self.ends_line = data.endswith(b"\n")
        with self._lock, contextlib.suppress(OSError):
            if self._file < 0:
                return
            if len(data) > self._room:
                self._next_file()
            self._room -= len(data)
            os.write(self._file, data)

    def finish(self) -> None:
        """Put head and tail into one file, with a line between them where something was left out."""
        with self._lock, contextlib.suppress(OSError):
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
        if self._tails:
            os.replace(self.path + ".end", self.path + ".before")
        self._file = _create(self.path + ".end")
        self._tails += 1
        self._room = self._tail_bytes

    def _close(self) -> None:
        descriptor, self._file = self._file, -1  # at once: the number may be another thread's the next moment
        if descriptor >= 0:
            os.close(descriptor)


class Passed:
    """One stream on its way from the job's end to ours."""

    def __init__(self, target: int, reader: int, kept: Kept) -> None:
        self.target = target
        self.kept = kept
        self.lost_reader = False  # who read what is passed on has gone
        self.is_writing = False
        self._reader = reader
        self._is_terminal = os.isatty(target)
        self._lost_bytes, self._why_lost = 0, ""

    def run(self) -> None:
        """Pass on until the job's end is closed; where our reader has gone the job's has, too (SIGPIPE).

        A disk that is full now costs the piece. The job would have been told, but not ended.
        """
        while data := self._read():
            self.is_writing = True
            self.kept.add(data)
            try:
                write_all(self.target, data)
            except OSError as error:
                self.lost_reader = error.errno == errno.EPIPE
                if self.lost_reader or (self._is_terminal and error.errno == errno.EIO):
                    break
                self._lost_bytes += len(data)
                self._why_lost = error.strerror or str(error)
            self.is_writing = False
        self.is_writing = False
        os.close(self._reader)

    @property
    def loss(self) -> str:
        """What of it could not be passed on, and why; "" for nothing."""
        what = f"up to {self._lost_bytes} bytes of the job's {NAMES[self.target]} were lost: {self._why_lost}"
        return what if self._lost_bytes else ""

    def _read(self) -> bytes:
        try:
            return os.read(self._reader, PIECE_BYTES)
        except OSError:  # EIO: the last who had the job's terminal has gone
            return b""


class Streams:
    """Both streams of the job, on their way through us."""

    def __init__(self, folder: str, prefix: str) -> None:
        self._passed: list[Passed] = []
        self._threads: list[threading.Thread] = []
        self._terminals: dict[int, int] = {}  # ours -> the job's
        self._given: dict[int, int] = {}
        for target in (1, 2):
            if target == 2 and _same_file(1, 2):
                self._given[2] = self._given[1]
                continue
            reader, self._given[target] = self._open(target)
            kept = Kept(os.path.join(folder, f"{prefix}{NAMES[target]}.log") if folder else "")
            self._passed.append(Passed(target, reader, kept))
        for passed in self._passed:
            self._threads.append(threading.Thread(target=passed.run, daemon=True))
            self._threads[-1].start()

    @property
    def stdout(self) -> int:
        """What the job gets as stdout."""
        return self._given[1]

    @property
    def stderr(self) -> int:
        """And as stderr."""
        return self._given[2]

    @property
    def written(self) -> int:
        """How many bytes the job has written so far."""
        return sum(passed.kept.written for passed in self._passed)

    @property
    def ends_line(self) -> bool:
        """Whether what is said on stderr now begins a line of its own."""
        here = (passed for passed in self._passed if passed.target == 2 or _same_file(passed.target, 2))
        return all(passed.kept.ends_line for passed in here)

    @property
    def lost_reader(self) -> bool:
        """Whether what reads the job's output has gone, which ends the job as without us (SIGPIPE)."""
        return any(passed.lost_reader for passed in self._passed)

    @property
    def losses(self) -> list[str]:
        """What could not be passed on, a sentence a stream."""
        return [passed.loss for passed in self._passed if passed.loss]

    @property
    def paths(self) -> list[str]:
        """The files in which something was kept."""
        kept = (passed.kept for passed in self._passed)
        return [each.path for each in kept if each.written and each.is_kept and os.path.exists(each.path)]

    def close_given(self) -> None:
        """Close what the job has by now: its output ends when the last of its own processes has closed it."""
        for descriptor in set(self._given.values()):
            os.close(descriptor)

    def finish(self, is_asked_to_end: Callable[[], bool]) -> None:
        """Wait for the rest of the output; what outlives the job is waited for as long as it writes.

        So is what reads our output, be it slow: without us it would find everything in its pipe.
        """
        until, before = time.monotonic() + AFTERWARDS_S, self.written
        while any(thread.is_alive() for thread in self._threads) and time.monotonic() < until:
            self._threads[0].join(0.02)
            self._threads[-1].join(0.02)
            if self.written != before or any(passed.is_writing for passed in self._passed):
                until, before = time.monotonic() + AFTERWARDS_S, self.written
            if is_asked_to_end():
                break
        for passed in self._passed:
            passed.kept.finish()

    def resize(self) -> None:
        """Give the job's terminal the size of ours."""
        for target, writer in self._terminals.items():
            with contextlib.suppress(OSError):
                size = fcntl.ioctl(target, termios.TIOCGWINSZ, bytes(8))
                fcntl.ioctl(writer, termios.TIOCSWINSZ, size)

    def _open(self, target: int) -> tuple[int, int]:
        if not os.isatty(target):
            return os.pipe()
        reader, writer = os.openpty()
        with contextlib.suppress(OSError, termios.error):
            settings = termios.tcgetattr(target)
            settings[1] &= ~termios.OPOST  # our own terminal does that
            termios.tcsetattr(writer, termios.TCSANOW, settings)
        self._terminals[target] = reader
        self.resize()
        return reader, writer


def _create(path: str) -> int:
    """Make a file of our own, and neither follow a link nor wait for who reads a FIFO."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(path, flags, PRIVATE)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "no regular file")
    return descriptor


def _same_file(one: int, other: int) -> bool:
    try:
        first, second = os.fstat(one), os.fstat(other)
    except OSError:
        return False
    return (first.st_dev, first.st_ino) == (second.st_dev, second.st_ino)
