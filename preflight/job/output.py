"""Pass the job's output on to preflight's own output, and keep a part of the output."""
# If preflight's output is a file, the job writes to the file directly. If the output is a pipe or a terminal, a copier
# process passes the output on. The job gets a terminal if preflight has a terminal, and a pipe if preflight has a pipe.
# The job therefore buffers and colors its output as without preflight. If stdout and stderr are the same file, the
# job's streams go to one file in their order. A copier may be killed. This process keeps the pipes open and starts a
# new copier that continues.

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import stat
import termios
import time

from preflight.job.children import Children, end_helper, how_it_ended
from preflight.job.copier import IS_WRITING, LOST_READER, copy
from preflight.job.folder import Folder
from preflight.job.kept import Kept

RETRY_S = 0.2  # after a copier failed, or could not be started
AFTERWARDS_S = 2.0  # for what a process that outlives the job still holds
PIECE_BYTES = 1 << 20  # of a file that is read again
MOST_NEWS = 1 << 20  # looked at while the job runs
NAMES = {1: "stdout", 2: "stderr"}


class Stream:
    """One output stream, which brings the job's stdout or stderr to preflight's own stdout or stderr."""

    def __init__(self, target: int, path: str) -> None:
        self.target = target
        self.given = target  # what the job has
        self.source = -1  # our end of it, if that is another
        self.copier = 0
        self.retry_at = 0.0  # of the monotonic clock
        self.counts = memoryview(mmap.mmap(-1, mmap.PAGESIZE)).cast("Q")  # shared with the copier
        self.is_terminal = os.isatty(target)
        self._begins_at = -1  # in a file
        self._heard = 0  # bytes that `news` has returned, or passed over
        kind = _kind(target)
        if self.is_terminal:
            self.source, self.given = _terminal_like(target)
        elif stat.S_ISFIFO(kind) or stat.S_ISSOCK(kind):
            self.source, self.given = os.pipe()
        elif stat.S_ISREG(kind):
            self._begins_at = _position(target)
        self.kept = Kept(path if self.source >= 0 or self._begins_at >= 0 else "")

    @property
    def written(self) -> int:
        """Return how many bytes the job has written."""
        if self._begins_at < 0:
            return self.kept.written
        try:
            return max(0, os.fstat(self.target).st_size - self._begins_at)
        except OSError:
            return 0

    def news(self) -> bytes:
        """Return the newest output since the previous call, up to a limit of bytes."""
        new, self._heard = min(MOST_NEWS, self.written - self._heard), self.written
        if new <= 0:
            return b""
        if self._begins_at < 0:
            return self.kept.last(new)
        with contextlib.suppress(OSError):
            file = self._reopen()
            try:
                return os.pread(file, new, self._begins_at + self._heard - new)
            finally:
                os.close(file)
        return b""

    @property
    def lost_reader(self) -> bool:
        """Return whether the process that reads the output has ended.

        Without a reader, SIGPIPE ends the job, as it does without preflight.
        """
        return bool(self.counts[LOST_READER])

    def run(self) -> None:
        """Copy the output until it ends. This method runs in a process that may be killed at any time."""
        self.kept.take_over()
        copy(self.source, self.target, self.is_terminal, self.kept, self.counts)

    def resize(self) -> None:
        """Give the job's terminal the size of preflight's terminal."""
        if self.is_terminal and self.source >= 0:
            with contextlib.suppress(OSError):
                fcntl.ioctl(self.source, termios.TIOCSWINSZ, fcntl.ioctl(self.target, termios.TIOCGWINSZ, bytes(8)))

    def close_source(self) -> None:
        """Close preflight's end of the stream. A process that still writes into the stream gets SIGPIPE."""
        self.copier, source, self.source = 0, self.source, -1
        close_surely(source)

    def finish(self) -> None:
        """Complete the kept output. If the job wrote directly to a file, read the output from this file."""
        if self._begins_at >= 0 and self.kept.is_kept:
            with contextlib.suppress(OSError):
                self._read_back()
        self.kept.finish()

    def _reopen(self) -> int:
        return os.open(f"/proc/self/fd/{self.target}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)

    def _read_back(self) -> None:
        file = self._reopen()
        at = self._begins_at if os.fstat(file).st_size >= self._begins_at else 0
        while data := os.pread(file, PIECE_BYTES, at):
            self.kept.add(data)
            at += len(data)
        os.close(file)


class Streams:
    """The two output streams of the job, stdout and stderr."""

    def __init__(self, folder: Folder) -> None:
        self._all: list[Stream] = []
        for target in (1, 2):
            if target == 1 or not _same_file(1, 2):
                self._all.append(Stream(target, folder.file(f"{NAMES[target]}.log") if folder.path else ""))

    @property
    def stdout(self) -> int | None:
        """Return the descriptor for the job's stdout, or None if the job uses preflight's own stdout."""
        return self._given(self._all[0], 1)

    @property
    def stderr(self) -> int | None:
        """Return the descriptor for the job's stderr, or None if the job uses preflight's own stderr."""
        return self._given(self._all[-1], 2)

    @property
    def written(self) -> int:
        """Return how many bytes the job has written so far."""
        return sum(stream.written for stream in self._all)

    def news(self) -> list[bytes]:
        """Return the newest output since the previous call, one item for each stream with new output."""
        return [news for stream in self._all if (news := stream.news())]

    @property
    def ends_line(self) -> bool:
        """Return whether the job's output on stderr ends with a complete line."""
        here = (each for each in self._all if each.target == 2 or _same_file(each.target, 2))
        return all(stream.kept.ends_line for stream in here)

    @property
    def lost_reader(self) -> bool:
        """Return whether the process that reads the job's stdout or stderr has ended."""
        return any(stream.lost_reader for stream in self._all)

    @property
    def paths(self) -> list[str]:
        """Return the paths of the files with kept output. Streams without output have no path."""
        kept = (stream.kept for stream in self._all)
        return [each.path for each in kept if each.written and each.is_kept and os.path.exists(each.path)]

    @property
    def kept_files(self) -> list[int]:
        """Return the descriptors of the files with kept output."""
        return [stream.kept.file for stream in self._all]

    @property
    def lack_a_copier(self) -> bool:
        """Return whether a stream that needs a copier process has no copier process."""
        return any(stream.source >= 0 and not stream.copier for stream in self._all)

    def close_given(self) -> None:
        """Close this process's copies of the descriptors that the job inherited.

        The output then ends when the last process of the job closes its descriptors.
        """
        for stream in self._all:
            if stream.given != stream.target:
                close_surely(stream.given)

    def look_after(self, children: Children) -> None:
        """Start a copier process for each stream that needs a copier and has none.

        A stream has no copier at first, or after its copier was killed.
        """
        for stream in self._all:
            code = how_it_ended(stream.copier) if stream.copier else None
            if code == 0:
                stream.close_source()
            elif code is not None:
                stream.copier = 0
                stream.retry_at = time.monotonic() + RETRY_S if code > 0 else 0.0
            if stream.source >= 0 and not stream.copier and time.monotonic() >= stream.retry_at:
                stream.copier = children.fork("preflight-copies", stream.run, [stream.source, stream.kept.file])

    def drain(self, children: Children) -> None:
        """Wait until the remaining output is copied.

        The method waits while processes that outlive the job still write, or while the reader is slow.
        """
        # A copier that still waits after a time limit is ended. Output that the copier did not pass on stays in the
        # pipe.
        until, before = time.monotonic() + AFTERWARDS_S, self.written
        while any(stream.source >= 0 for stream in self._all) and time.monotonic() < until:
            self.look_after(children)
            if self.written != before or any(stream.counts[IS_WRITING] for stream in self._all):
                until, before = time.monotonic() + AFTERWARDS_S, self.written
            if children.is_asked_to_end(0.02):
                break
        for stream in self._all:
            end_helper(stream.copier)
            stream.close_source()

    def finish(self) -> None:
        """Complete the kept output of both streams."""
        for stream in self._all:
            stream.finish()

    def resize(self) -> None:
        """Give the job's terminal the size of preflight's terminal."""
        for stream in self._all:
            stream.resize()

    @staticmethod
    def _given(stream: Stream, target: int) -> int | None:
        return None if stream.given == target else stream.given


def close_surely(descriptor: int) -> None:
    """Close `descriptor`, and ignore errors of close()."""
    for _ in range(2 if descriptor >= 0 else 0):
        try:
            os.close(descriptor)
        except OSError:
            continue
        return


def _kind(target: int) -> int:
    try:
        return os.fstat(target).st_mode
    except OSError:  # closed, and so it is for the job
        return 0


def _terminal_like(target: int) -> tuple[int, int]:
    """Return preflight's end and the job's end of a new terminal with the properties of `target`."""
    ours, given = os.openpty()
    with contextlib.suppress(OSError, termios.error):
        settings = termios.tcgetattr(target)
        settings[1] &= ~termios.OPOST  # our own terminal does that
        termios.tcsetattr(given, termios.TCSANOW, settings)
        fcntl.ioctl(ours, termios.TIOCSWINSZ, fcntl.ioctl(target, termios.TIOCGWINSZ, bytes(8)))
    return ours, given


def _position(file: int) -> int:
    """Return the offset in a file, in bytes, at which the job's output begins."""
    appends = fcntl.fcntl(file, fcntl.F_GETFL) & os.O_APPEND
    return os.lseek(file, 0, os.SEEK_END if appends else os.SEEK_CUR)


def _same_file(one: int, other: int) -> bool:
    try:
        first, second = os.fstat(one), os.fstat(other)
    except OSError:
        return False
    return (first.st_dev, first.st_ino) == (second.st_dev, second.st_ino)
