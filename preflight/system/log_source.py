"""Open a log whatever it is packed with, and hand it out in pieces of bounded size."""

from __future__ import annotations

import lzma
import os
import sys
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import BinaryIO

import zstandard

from preflight.errors import MalformedInput, UsageError

STDIN = "-"
CHUNK_BYTES = 1 << 20
PACKED_BYTES = 64 << 10
MEMORY_BYTES = 64 << 20  # for a decompressor's window
# A log shrinks 5 to 100 times. What grows far beyond that is no log, and reading stops there.
MAX_RATIO = 250
FREE_BYTES = 256 << 20
GZIP, ZSTD, XZ = b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"\xfd7zXZ\x00"
GZIP_WINDOW = 16 + zlib.MAX_WBITS


@dataclass(slots=True)
class LogSource:
    """A log that can be read once; `note` says, after reading, what could not be."""

    name: str
    file: BinaryIO
    note: str = ""
    head: bytes = b""

    def peek(self) -> bytes:
        """Return the first bytes, decompressed or not as they lie in the file."""
        if not self.head:
            self.head = self._read(CHUNK_BYTES)
        return self.head

    def chunks(self) -> Iterator[bytes]:
        """Yield the text in pieces; what is damaged ends it, with a note."""
        head = self.peek()
        source = _Rest(head, self._read)
        unpacked = 0
        try:
            for text in _unpacked(head, source):
                unpacked += len(text)
                yield text
                if unpacked > max(FREE_BYTES, MAX_RATIO * source.taken_bytes):
                    packed = f"{source.taken_bytes} bytes"
                    self.note = f"{unpacked >> 20} MiB out of {packed} is no log; the rest was not read"
                    return
        except (zlib.error, lzma.LZMAError, zstandard.ZstdError, EOFError) as error:
            self.note = f"damaged or cut off after {unpacked} bytes: {str(error)[:80]}"
        finally:
            self.close()

    def whole(self, limit_bytes: int) -> bytes:
        """Return everything; MalformedInput where that is more than the limit."""
        data = b""
        for chunk in self.chunks():
            data += chunk
            if len(data) > limit_bytes:
                raise MalformedInput(f"{self.name}: more than {limit_bytes >> 20} MiB")
        return data

    def close(self) -> None:
        """Close the file; standard input stays open."""
        if self.name != STDIN:
            self.file.close()

    def _read(self, size: int) -> bytes:
        try:
            return self.file.read(size)
        except OSError as error:
            self.note = f"could not be read further: {error.strerror}"
            return b""


def open_log(path: str) -> LogSource:
    """Open a log or standard input (`-`). UsageError: there is no such file, or it may not be read."""
    if path == STDIN:
        return LogSource(path, sys.stdin.buffer)
    try:
        if os.path.isdir(path):
            raise UsageError(f"{path}: is a directory; name the logs in it")
        return LogSource(path, open(path, "rb", buffering=0))
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: can't be read: {getattr(error, 'strerror', None) or error}") from None


class _Rest:
    """A file whose first bytes were already read; counts what is taken from it."""

    def __init__(self, head: bytes, read: Callable[[int], bytes]) -> None:
        self._head = head
        self._read = read
        self.taken_bytes = 0

    def read(self, size: int = -1) -> bytes:
        """Return at most `size` bytes."""
        size = CHUNK_BYTES if size < 0 else size
        data, self._head = (self._head[:size], self._head[size:]) if self._head else (self._read(size), b"")
        self.taken_bytes += len(data)
        return data


def _unpacked(head: bytes, source: _Rest) -> Iterator[bytes]:
    """Yield the text in pieces of at most CHUNK_BYTES, however well it was packed."""
    if head.startswith(ZSTD):
        unpacker = zstandard.ZstdDecompressor(max_window_size=MEMORY_BYTES)
        reader = unpacker.stream_reader(source, read_size=PACKED_BYTES, read_across_frames=True)  # type: ignore[arg-type]
        while text := reader.read(CHUNK_BYTES):
            yield text
        return
    if head.startswith(GZIP):
        yield from _gunzipped(source)
    elif head.startswith(XZ):
        yield from _unxzed(source)
    else:
        yield from iter(partial(source.read, CHUNK_BYTES), b"")


def _gunzipped(source: _Rest) -> Iterator[bytes]:
    """Yield members one after the other, as rotation and `cat` leave them."""
    member = zlib.decompressobj(GZIP_WINDOW)
    while data := source.read(PACKED_BYTES):
        while data:
            yield member.decompress(data, CHUNK_BYTES)
            data = member.unconsumed_tail
            if member.eof:
                data = member.unused_data.lstrip(b"\0")
                member = zlib.decompressobj(GZIP_WINDOW)


def _unxzed(source: _Rest) -> Iterator[bytes]:
    stream = lzma.LZMADecompressor(memlimit=MEMORY_BYTES)
    while data := source.read(PACKED_BYTES):
        while data or not stream.needs_input:
            yield stream.decompress(data, CHUNK_BYTES)
            data = b""
            if stream.eof:
                data = stream.unused_data.lstrip(b"\0")
                stream = lzma.LZMADecompressor(memlimit=MEMORY_BYTES)
                if not data:
                    break
