"""Open a log in any compression or encoding, and return the log as UTF-8 in pieces of bounded size."""

from __future__ import annotations

import codecs
import os
import stat
import sys
from collections.abc import Iterable, Iterator
from typing import Protocol

from preflight.errors import MalformedInput, UsageError
from preflight.system.archives import FREE_BYTES, MAX_RATIO, members
from preflight.system.inputs import WRITER_S
from preflight.system.unpack import unpacked
from preflight.system.waiting import wait_for

STDIN = "-"
MAGIC_BYTES = 1 << 10
LOOKED_AT_BYTES = 64 << 10
# Control characters that no log holds; escapes, tabs, line ends, bells and backspaces are those of terminals.
CONTROLS = bytes(code for code in range(32) if code not in b"\a\b\t\n\v\f\r\x1b") + b"\x7f"
MOST_CONTROLS = 0.05  # of compressed or random bytes it is a tenth
MOSTLY = 0.4  # of UTF-16, more than this share of every second byte is 0 where the text is mostly Latin


class Readable(Protocol):
    """The interface of a file that can be read and closed, such as a file in an archive."""

    def read(self, size: int, /) -> bytes | None: ...
    def close(self) -> None: ...


class LogSource:
    """A log that can be read once.

    After reading, `note` names the unreadable part, or is "". `is_whole` says whether the log was read to the end.
    """

    def __init__(self, name: str, file: Readable, size_bytes: int = 0, pipe_fd: int = -1) -> None:
        self.name = name
        self._size_bytes = size_bytes  # of a file when it was opened: one that grows faster than it is read ends there
        self._pipe_fd = pipe_fd
        self._is_silent = False
        self.note = ""
        self.is_whole = True
        self._file = file
        self._taken_bytes = 0
        self._packed_head = b""
        self._pieces = self._unpacked()
        self._head: bytes | None = None

    def peek(self) -> bytes:
        """Return the first piece of the unpacked content, or b"" if the log is empty.

        Raise UsageError if the library that unpacks the log is not installed.
        """
        if self._head is None:
            self._head = next((piece for piece in self._pieces if piece), b"")
        return self._head

    def chunks(self) -> Iterator[bytes]:
        """Yield the log as UTF-8 in pieces.

        The text ends at damaged or truncated data, and `note` says so.
        """
        head = self.peek()
        if codec := utf16_of(head):
            yield from as_utf8(codec, self.data())
            return
        if is_binary(head):
            self._say("this is binary data, hardly a log")
        elif not head.strip(b"\0 \t\r\n"):
            self._say("it is empty" if not head else "it begins with blanks or zeros")
        yield from self.data()

    def data(self) -> Iterator[bytes]:
        """Yield the unpacked content in its original encoding."""
        head, self._head = self.peek(), b""
        if head:
            yield head
        yield from self._pieces

    def members(self) -> Iterator[LogSource]:
        """Yield each file of this archive as a LogSource. Read each file before you take the next file.

        If a file can't be read, `note` has the reason.
        """
        try:
            for member in members(self.peek(), self.data()):
                inner = LogSource(f"{self.name}:{member.name}", member)
                inner.note = member.why_not
                yield inner
        except MalformedInput as error:
            if self.is_whole:
                self._say(str(error))
            self.is_whole = False

    def whole(self, limit_bytes: int) -> bytes:
        """Return the unpacked content. Raise MalformedInput if the content is larger than `limit_bytes`."""
        pieces: list[bytes] = []
        size = 0
        for piece in self.data():
            size += len(piece)
            if size > limit_bytes:
                raise MalformedInput(f"{self.name}: more than {limit_bytes >> 20} MiB")
            pieces.append(piece)
        return b"".join(pieces)

    def close(self) -> None:
        """Close the file, unless it is standard input."""
        if self._file is not sys.stdin.buffer:
            self._file.close()

    def _unpacked(self) -> Iterator[bytes]:
        self._packed_head = self._read(MAGIC_BYTES)
        size = 0
        try:
            for piece in unpacked(self._packed_head, self._next):
                size += len(piece)
                yield piece
                if size > max(FREE_BYTES, MAX_RATIO * self._taken_bytes):
                    self._say(f"{size >> 20} MiB out of {self._taken_bytes} bytes is no log; the rest was not read")
                    self.is_whole = False
                    return
        except MalformedInput as error:
            self._say(f"{error}; read up to there, {size} bytes")
            self.is_whole = False
        except UsageError as error:
            raise UsageError(f"{self.name}: {error}") from None

    def _next(self, size: int) -> bytes:
        """Return at most `size` of the next raw bytes of the file.

        The bytes that were read to find the magic number are returned again.
        """
        data, self._packed_head = self._packed_head, b""
        if len(data) < size:
            data += self._read(size - len(data))
        return data

    def _read(self, size: int) -> bytes:
        if self._size_bytes:
            size = min(size, self._size_bytes - self._taken_bytes)
        if self._pipe_fd >= 0 and not self._is_silent and not wait_for([self._pipe_fd], (), WRITER_S):
            self._say(f"nothing came for {WRITER_S:.0f} s; read up to there")
            self._is_silent = True
        if self._is_silent:
            return b""
        try:
            data = self._file.read(size) or b""
        except (OSError, MalformedInput) as error:
            self._say(f"could not be read further: {getattr(error, 'strerror', None) or error}")
            self.is_whole = False
            return b""
        self._taken_bytes += len(data)
        return data

    def _say(self, what: str) -> None:
        self.note = f"{self.note}; {what}" if self.note else what


def open_log(path: str) -> LogSource:
    """Open the log `path`, or standard input for `-`. Raise UsageError if the log can't be opened."""
    if path == STDIN:
        return LogSource("stdin", sys.stdin.buffer)
    try:
        # A FIFO without a writer, or /proc/kmsg, would be waited for without end.
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
        status = os.fstat(fd)
        if stat.S_ISCHR(status.st_mode) or stat.S_ISBLK(status.st_mode):
            os.close(fd)
            raise UsageError(f"{path}: it is a device, not a log")
        size_bytes = status.st_size if stat.S_ISREG(status.st_mode) else 0
        return LogSource(path, open(fd, "rb", buffering=0), size_bytes, fd if stat.S_ISFIFO(status.st_mode) else -1)
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: can't be read: {getattr(error, 'strerror', None) or error}") from None


def utf16_of(head: bytes) -> str:
    """Return the UTF-16 codec of a text that begins with `head`, or "" if the text is not UTF-16."""
    for mark, codec in ((codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be")):
        if head.startswith(mark):
            return codec
    sample = head[:LOOKED_AT_BYTES]
    half = len(sample) // 2
    if half < 8:
        return ""
    even, odd = sample[0 : 2 * half : 2].count(0) / half, sample[1::2].count(0) / half
    if odd > MOSTLY and even < 0.01:
        return "utf-16-le"
    return "utf-16-be" if even > MOSTLY and odd < 0.01 else ""


def is_binary(head: bytes) -> bool:
    """Return whether `head`, the first bytes of a file, is binary data.

    Zero bytes at the start do not count, because truncated logs may start with zero bytes.
    """
    sample = head.lstrip(b"\0")[:LOOKED_AT_BYTES]
    if not sample or utf16_of(head):
        return False
    return len(sample) - len(sample.translate(None, CONTROLS)) > MOST_CONTROLS * len(sample)


def as_utf8(codec: str, pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Convert pieces of text from the encoding `codec` to UTF-8, without the byte order mark.

    Undecodable bytes become U+FFFD.
    """
    decoder = codecs.getincrementaldecoder(codec)(errors="replace")
    for piece in pieces:
        yield decoder.decode(piece).replace("\ufeff", "").encode("utf-8", "replace")
    yield decoder.decode(b"", final=True).encode("utf-8", "replace")
