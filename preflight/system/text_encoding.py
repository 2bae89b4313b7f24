"""Bytes that a program or an editor wrote as text, as UTF-8: UTF-16 is decoded, and what is no text is told apart."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Iterator

LOOKED_AT_BYTES = 64 << 10
# Control characters that no log holds; escapes, tabs, line ends, bells and backspaces are those of terminals.
CONTROLS = bytes(code for code in range(32) if code not in b"\a\b\t\n\v\f\r\x1b") + b"\x7f"
MOST_CONTROLS = 0.05  # of compressed or random bytes it is a tenth
MOSTLY = 0.4  # of UTF-16, more than this share of every second byte is 0 where the text is mostly Latin


def utf16_of(head: bytes) -> str:
    """Return the codec of UTF-16 text, by its mark or by its zeros; "" for anything else."""
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
    """Tell whether bytes are no text in any encoding; zeros alone are what a truncated or crashed log begins with."""
    sample = head.lstrip(b"\0")[:LOOKED_AT_BYTES]
    if not sample or utf16_of(head):
        return False
    return len(sample) - len(sample.translate(None, CONTROLS)) > MOST_CONTROLS * len(sample)


def as_utf8(codec: str, pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the pieces as UTF-8, without the mark of the byte order; what can't be decoded becomes U+FFFD."""
    decoder = codecs.getincrementaldecoder(codec)(errors="replace")
    for piece in pieces:
        yield decoder.decode(piece).replace("\ufeff", "").encode("utf-8", "replace")
    yield decoder.decode(b"", final=True).encode("utf-8", "replace")
