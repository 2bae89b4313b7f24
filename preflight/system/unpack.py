"""Unpack compressed data in small pieces, with a limit on memory. Truncated data raise an error."""

from __future__ import annotations

import bz2
import lzma
import re
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Protocol

from preflight.errors import MalformedInput, UsageError

CHUNK_BYTES = 1 << 20
PACKED_BYTES = 64 << 10
ZSTD_PACKED_BYTES = 1 << 10  # a block of 4 bytes can hold 128 KiB, and this decompressor takes no limit
MEMORY_BYTES = 64 << 20  # for a decompressor's window
GZIP, ZSTD, XZ = b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"\xfd7zXZ\x00"
BZIP2 = re.compile(rb"BZh[1-9](?:1AY&SY|\x17rE8P\x90)")  # BZh alone could begin a text
GZIP_WINDOW = 16 + zlib.MAX_WBITS

Read = Callable[[int], bytes]


class Unpacker(Protocol):
    """The common interface of the decompressors of zlib, bz2, lzma and zstandard."""

    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...


def unpacked(head: bytes, read: Read) -> Iterator[bytes]:
    """Yield the content of a stream in pieces of bounded size, unpacked if the stream is compressed.

    Raise MalformedInput if the data are damaged or truncated. Raise UsageError if the library that unpacks zstd is not
    installed.
    """
    # `head` has the first bytes of the stream, which show the compression. `read` returns the bytes of the stream from
    # its start.
    try:
        if head.startswith(GZIP):
            yield from _members(read, PACKED_BYTES, partial(zlib.decompressobj, GZIP_WINDOW), _inflated)
        elif BZIP2.match(head):
            yield from _members(read, PACKED_BYTES, bz2.BZ2Decompressor, _drained)
        elif head.startswith(XZ):
            new = partial(lzma.LZMADecompressor, memlimit=MEMORY_BYTES)
            yield from _members(read, PACKED_BYTES, new, _drained)
        elif head.startswith(ZSTD):
            yield from _zstd(read)
        else:
            yield from iter(partial(read, CHUNK_BYTES), b"")
    except (zlib.error, lzma.LZMAError, OSError, EOFError, ValueError) as error:
        raise MalformedInput(f"damaged: {str(error)[:80]}") from None


def _members(
    read: Read, size: int, new: Callable[[], Any], unpack: Callable[[Any, bytes], Iterator[bytes]]
) -> Iterator[bytes]:
    """Unpack the concatenated members of a compressed stream.

    Log rotation and `cat` produce several members in one file. Zero bytes between members are skipped as padding.
    """
    member: Unpacker | None = None
    while data := read(size):
        while data:
            if member is None:
                data = data.lstrip(b"\0")
                if not data:
                    break
                member = new()
            yield from unpack(member, data)
            data = b""
            if member.eof:
                data, member = member.unused_data, None
    if member is not None:
        raise MalformedInput("cut off: the compressed data end in the middle")


def _zstd(read: Read) -> Iterator[bytes]:
    try:
        import zstandard  # noqa: PLC0415  an extra: it is larger than preflight, and few logs need it
    except ImportError:
        raise UsageError("zstd can't be unpacked here: pip install 'preflight-nccl[zstd]'") from None
    frames = zstandard.ZstdDecompressor(max_window_size=MEMORY_BYTES)
    try:
        yield from _members(read, ZSTD_PACKED_BYTES, frames.decompressobj, _whole)
    except zstandard.ZstdError as error:
        raise MalformedInput(f"damaged: {str(error)[:80]}") from None


def _inflated(member: Any, data: bytes) -> Iterator[bytes]:
    while True:
        text = member.decompress(data, CHUNK_BYTES)
        data = member.unconsumed_tail
        yield text
        if member.eof or (not data and len(text) < CHUNK_BYTES):
            return


def _drained(member: Any, data: bytes) -> Iterator[bytes]:
    yield member.decompress(data, CHUNK_BYTES)
    while not member.eof and not member.needs_input:
        yield member.decompress(b"", CHUNK_BYTES)


def _whole(member: Any, data: bytes) -> Iterator[bytes]:
    yield member.decompress(data)
