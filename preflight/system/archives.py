"""Read the files in a tar or zip archive from a stream, one after another.

The archive can come through a pipe, and a truncated zip archive can be read.
"""
# `ARCHIVE` of the input limits bounds the cost of one archive.

from __future__ import annotations

import re
import struct
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from preflight.errors import MalformedInput
from preflight.model.input_limits import ARCHIVE

ZIP, ZIP_ENDS = b"PK\x03\x04", (b"PK\x01\x02", b"PK\x05\x06", b"PK\x06\x06", b"PK\x06\x08")
TAR, TAR_AT, BLOCK = b"ustar", 257, 512
MOST_S = 600.0
NAME_BYTES = 4 << 10  # of a name; what claims a longer one is left out
SHOWN = 200
PIECE_BYTES = 256 << 10
# A log shrinks 5 to 100 times; what grows far beyond that is none.
MAX_RATIO, FREE_BYTES = 250, 256 << 20
STORED, DEFLATED = 0, 8
ENCRYPTED, SIZES_FOLLOW, UTF8 = 1, 8, 1 << 11
UNKNOWN = 0xFFFFFFFF  # a size that is in zip64's field
CUT = "cut off: the archive ends in the middle"
PAX_PATH = re.compile(rb"(?:^|\n)(\d{1,6}) path=")


def is_archive(head: bytes) -> bool:
    """Return whether a file that begins with the bytes `head` is a tar or zip archive."""
    return head.startswith(ZIP) or head[TAR_AT : TAR_AT + len(TAR)] == TAR


class Pieces:
    """A reader of a stream of bytes that arrives in pieces of any length. `taken` counts the bytes read so far."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._held = memoryview(b"")
        self.taken = 0

    def some(self, most: int) -> bytes:
        """Return at most `most` of the next bytes, or b"" at the end of the stream."""
        while not self._held:
            piece = next(self._pieces, None)
            if piece is None:
                return b""
            self._held = memoryview(piece)
        data, self._held = bytes(self._held[:most]), self._held[most:]
        self.taken += len(data)
        return data

    def exactly(self, size: int) -> bytes:
        """Return exactly the next `size` bytes. Raise MalformedInput if the stream ends earlier."""
        found = bytearray()
        while len(found) < size:
            data = self.some(size - len(found))
            if not data:
                raise MalformedInput(CUT)
            found += data
        return bytes(found)

    def back(self, data: bytes) -> None:
        """Put back `data`, bytes that were read beyond the end of an entry."""
        self._held = memoryview(data + bytes(self._held))
        self.taken -= len(data)


@dataclass(slots=True)
class ArchivedFile:
    """A file in an archive, which must be read before the next file.

    `why_not` says why the file can't be read, or is "".
    """

    name: str
    why_not: str
    _parts: Iterator[bytes]
    _held: bytes = b""
    error: MalformedInput | None = None  # what ended it too early, and the archive with it

    def read(self, size: int) -> bytes:
        """Return at most `size` of the file's next bytes, or b"" at the end.

        Raise MalformedInput if the archive is truncated or damaged.
        """
        if not self._held:
            try:
                self._held = next(self._parts, b"")
            except MalformedInput as error:
                self.error = error
                raise
        data, self._held = self._held[:size], self._held[size:]
        return data

    def close(self) -> None:
        """Skip the rest of the file that was not read, so that the next file of the archive can be read."""
        self._held = b""
        for _ in self._parts:
            pass


def members(head: bytes, stream: Iterator[bytes]) -> Iterator[ArchivedFile]:
    """Yield the files of the archive in `stream`, which begins with the bytes `head`.

    Read or skip each file before you take the next file. Raise MalformedInput if the archive is damaged, truncated, or
    too large.
    """
    pieces = Pieces(stream)
    spent = _Spent(pieces)
    for member in (_zip if head.startswith(ZIP) else _tar)(pieces, spent):
        yield member
        member.close()
        if member.error is not None:
            raise member.error


class _Spent:
    """A counter of the entries, bytes and seconds that one archive has cost so far."""

    def __init__(self, pieces: Pieces) -> None:
        self._pieces = pieces
        self._bytes = self._entries = 0
        self._until = time.monotonic() + MOST_S

    def entry(self) -> None:
        """Count a file, a folder, or another entry of an archive."""
        self._entries += 1
        if self._entries > ARCHIVE.most_values:
            raise MalformedInput(f"more than {ARCHIVE.most_values} files; the rest was not read")
        self.checked(b"")

    def checked(self, data: bytes) -> bytes:
        """Return the unpacked bytes `data`, and count the bytes toward the limits."""
        self._bytes += len(data)
        if self._bytes > max(FREE_BYTES, MAX_RATIO * self._pieces.taken):
            raise MalformedInput(
                f"{self._bytes >> 20} MiB out of {self._pieces.taken} bytes is not a log, so the rest was not read"
            )
        if self._bytes > ARCHIVE.most_bytes:
            raise MalformedInput(f"{ARCHIVE.too_large()}; the rest was not read")
        if time.monotonic() > self._until:
            raise MalformedInput(f"took more than {MOST_S:.0f} s; the rest was not read")
        return data


Check = Callable[[bytes], bytes]


def _shown(name: bytes) -> str:
    text = "".join(char if char.isprintable() else f"\\x{ord(char):02x}" for char in name.decode("utf-8", "replace"))
    return text if len(text) <= SHOWN else "..." + text[-SHOWN:]


def _stored(pieces: Pieces, size: int, check: Check) -> Iterator[bytes]:
    while size > 0:
        data = pieces.some(min(size, PIECE_BYTES))
        if not data:
            raise MalformedInput(CUT)
        size -= len(data)
        yield check(data)


def _skip(parts: Iterator[bytes]) -> None:
    for _ in parts:
        pass


def _tar(pieces: Pieces, spent: _Spent) -> Iterator[ArchivedFile]:
    check, long_name = spent.checked, b""
    while True:
        header = pieces.some(BLOCK)
        if not header:
            raise MalformedInput(CUT)  # two blocks of zeros end an archive
        header += pieces.exactly(BLOCK - len(header))
        if not header.strip(b"\0"):
            return
        spent.entry()
        _check_sum(header)
        size, kind = _number(header[124:136]), header[156:157]
        body = _stored(pieces, size, check)
        if kind in b"Lx" and size <= NAME_BYTES * 4:
            long_name = _long_name(kind, b"".join(body)) or long_name
        elif kind in b"0\x007":
            name = long_name or _tar_name(header)
            long_name = b""
            yield ArchivedFile(_shown(name), "", body)
        else:  # folders, links, devices, attributes for all
            _skip(body)
            long_name = b"" if kind not in b"KgLx" else long_name
        pieces.exactly(-size % BLOCK)


def _check_sum(header: bytes) -> None:
    claimed = _number(header[148:156])
    if sum(header[:148]) + 8 * 0x20 + sum(header[156:]) != claimed:
        raise MalformedInput("damaged: the check sum of a file's head is wrong")


def _number(field: bytes) -> int:
    if field[:1] == b"\x80":  # GNU writes large numbers so
        return int.from_bytes(field[1:], "big")
    text = field.strip(b"\0 ")
    if not re.fullmatch(rb"[0-7]{0,12}", text):
        raise MalformedInput("damaged: a size is no number")
    return int(text or b"0", 8)


def _tar_name(header: bytes) -> bytes:
    name, before = header[:100].split(b"\0")[0], header[345:500].split(b"\0")[0]
    return before + b"/" + name if before and header[257:263] == b"ustar\0" else name


def _long_name(kind: bytes, body: bytes) -> bytes:
    if kind == b"L":
        return body.split(b"\0")[0]
    match = PAX_PATH.search(body)
    return body[match.end() : match.start(1) + int(match[1]) - 1] if match else b""


def _zip(pieces: Pieces, spent: _Spent) -> Iterator[ArchivedFile]:
    check = spent.checked
    while True:
        magic = pieces.exactly(4)
        if magic in ZIP_ENDS:
            return
        spent.entry()
        if magic != ZIP:
            raise MalformedInput("damaged: there is no file's head where one should be")
        flags, method, size, name_size, extra_size = struct.unpack("<2xHH8xI4xHH", pieces.exactly(26))
        name, extra = pieces.exactly(name_size), pieces.exactly(extra_size)
        size = _zip64_size(extra) if size == UNKNOWN else size
        sizes_follow = bool(flags & SIZES_FOLLOW)
        if sizes_follow and (method != DEFLATED or flags & ENCRYPTED):
            raise MalformedInput(f"{_shown(name)[-SHOWN:]} and what follows can't be separated: unpack it")
        why_not = (
            "encrypted"
            if flags & ENCRYPTED
            else ""
            if method in (STORED, DEFLATED)
            else f"packed by method {method}, which is not read"
        )
        if why_not or method == STORED:
            body = _stored(pieces, size, check)
        else:
            body = _inflated(pieces, None if sizes_follow else size, check)
        if name.endswith(b"/"):
            _skip(body)
        else:
            yield ArchivedFile(_shown(name), why_not, body)
        if sizes_follow:
            _skip_sizes(pieces)


def _zip64_size(extra: bytes) -> int:
    while len(extra) >= 4:
        kind, size = struct.unpack("<HH", extra[:4])
        if kind == 1 and size >= 16 and len(extra) >= 20:
            return int.from_bytes(extra[12:20], "little")
        extra = extra[4 + size :]
    return UNKNOWN


def _inflated(pieces: Pieces, size: int | None, check: Check) -> Iterator[bytes]:
    """Yield the unpacked content of a deflated file.

    `size` is the packed size of the file, or None if the archive gives this size only after the file. If `size` is
    None, an end mark in the packed data ends the file.
    """
    inflate, left = zlib.decompressobj(-zlib.MAX_WBITS), size
    try:
        while not inflate.eof and left != 0:
            data = pieces.some(PIECE_BYTES if left is None else min(left, PIECE_BYTES))
            if not data:
                raise MalformedInput(CUT)
            left = None if left is None else left - len(data)
            while True:
                text = inflate.decompress(data, PIECE_BYTES)
                data = inflate.unconsumed_tail
                if text:
                    yield check(text)
                if inflate.eof or (not data and len(text) < PIECE_BYTES):
                    break
    except zlib.error as error:
        raise MalformedInput(f"damaged: {str(error)[:80]}") from None
    if not inflate.eof:
        raise MalformedInput(CUT)
    if left is None:
        pieces.back(inflate.unused_data)
    else:
        _skip(_stored(pieces, left, check))


def _skip_sizes(pieces: Pieces) -> None:
    """Skip the checksum and the sizes that follow a file in a zip archive.

    These values take 12 or 20 bytes. A marker of 4 bytes often precedes them.
    """
    data = bytearray()
    while len(data) < 24 and (more := pieces.some(24 + 4 - len(data))):
        data += more
    data += pieces.some(28 - len(data)) if len(data) < 28 else b""
    for size in (16, 24, 12, 20):
        after = bytes(data[size : size + 4])
        if after == ZIP or after in ZIP_ENDS:
            pieces.back(bytes(data[size:]))
            return
    raise MalformedInput(CUT if len(data) < 28 else "damaged: there is no file's head where one should be")
