"""The job's output: passed on as it comes, and kept, its beginning and its end.

The job writes into a terminal where we have one, and into a pipe otherwise, so that it buffers and colours as it does
without us. Where stdout and stderr are one thing they stay one, in order.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import termios
import threading
import time

HEAD_BYTES, TAIL_BYTES = 16 << 20, 24 << 20  # kept of a stream: the head, and once or twice the tail
PIECE_BYTES = 1 << 16
AFTERWARDS_S = 2.0  # for what a process that outlives the job still holds
PRIVATE = 0o600
NAMES = {1: "stdout", 2: "stderr"}


class Kept:
    """A stream's head and tail in files of mode 0600."""

    def __init__(self, path: str, head_bytes: int = HEAD_BYTES, tail_bytes: int = TAIL_BYTES) -> None:
        self.path = path
        self.written = 0
        self.lost_reader = False  # who read what is passed on has gone
        self.ends_line = True
        self._file = _create(path)
        self._room, self._tail_bytes = head_bytes, tail_bytes
        self._tails = 0

    def add(self, data: bytes) -> None:
        """Keep a piece; a full disk costs what would have been kept, and not the job."""
        self.written += len(data)
        self.ends_line = data.endswith(b"\n")
        if self._file < 0:
            return
        with contextlib.suppress(OSError):
            if len(data) > self._room:
                self._next_file()
            os.write(self._file, data)
        self._room -= len(data)

    def finish(self) -> None:
        """Put head and tail into one file, with a line between them where something was left out."""
        os.close(self._file)
        self._file = -1
        parts = [self.path + end for end in (".before", ".end") if os.path.exists(self.path + end)]
        with contextlib.suppress(OSError), open(self.path, "ab") as whole:
            left_out = self.written - sum(os.path.getsize(part) for part in [self.path, *parts])
            if left_out > 0:
                whole.write(b"\n[preflight: %d bytes were not kept]\n" % left_out)
            for part in parts:
                with open(part, "rb") as file:
                    shutil.copyfileobj(file, whole)
        for part in parts:
            os.unlink(part)

    def _next_file(self) -> None:
        os.close(self._file)
        if self._tails:
            os.replace(self.path + ".end", self.path + ".before")
        self._file = _create(self.path + ".end")
        self._tails += 1
        self._room = self._tail_bytes


class Streams:
    """Both streams of the job, on their way through us."""

    def __init__(self, folder: str, prefix: str) -> None:
        self._kept: list[Kept] = []
        self._threads: list[threading.Thread] = []
        self._terminals: dict[int, int] = {}  # ours -> the job's
        self._given: dict[int, int] = {}
        self._readers: list[tuple[int, int, Kept]] = []
        for target in (1, 2):
            if target == 2 and _same_file(1, 2):
                self._given[2] = self._given[1]
                continue
            reader, writer = self._open(target)
            kept = Kept(os.path.join(folder, f"{prefix}{NAMES[target]}.log"))
            self._given[target] = writer
            self._kept.append(kept)
            self._readers.append((reader, target, kept))

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
        return sum(kept.written for kept in self._kept)

    @property
    def ends_line(self) -> bool:
        """Whether what is said on stderr now begins a line of its own."""
        return all(kept.ends_line for _, target, kept in self._readers if target == 2 or _same_file(target, 2))

    @property
    def lost_reader(self) -> bool:
        """Whether what reads the job's output has gone, which ends the job as without us (SIGPIPE)."""
        return any(kept.lost_reader for kept in self._kept)

    @property
    def paths(self) -> list[str]:
        """The files in which something was kept."""
        return [kept.path for kept in self._kept if kept.written]

    def begin(self) -> None:
        """Pass on what comes, once the job has its ends."""
        for descriptor in set(self._given.values()):
            os.close(descriptor)
        for reader, target, kept in self._readers:
            thread = threading.Thread(target=_pass_on, args=(reader, target, kept), daemon=True)
            thread.start()
            self._threads.append(thread)

    def finish(self) -> None:
        """Wait for the rest of the output; what outlives the job is waited for as long as it writes."""
        until, before = time.monotonic() + AFTERWARDS_S, self.written
        while any(thread.is_alive() for thread in self._threads) and time.monotonic() < until:
            self._threads[0].join(0.02)
            self._threads[-1].join(0.02)
            if self.written != before:
                until, before = time.monotonic() + AFTERWARDS_S, self.written
        for kept in self._kept:
            kept.finish()

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
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, PRIVATE)


def _same_file(one: int, other: int) -> bool:
    try:
        first, second = os.fstat(one), os.fstat(other)
    except OSError:
        return False
    return (first.st_dev, first.st_ino) == (second.st_dev, second.st_ino)


def _pass_on(reader: int, target: int, kept: Kept) -> None:
    """Pass on until the job's end is closed; where our reader has gone the job's has, too (SIGPIPE)."""
    try:
        while data := os.read(reader, PIECE_BYTES):
            kept.add(data)
            view = memoryview(data)
            while view:
                view = view[os.write(target, view) :]
    except BrokenPipeError:
        kept.lost_reader = True
    except OSError:  # EIO: the last who had the job's terminal has gone
        pass
    os.close(reader)
