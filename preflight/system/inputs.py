"""Read input from users and other programs, with a size limit for each kind of input."""

from __future__ import annotations

import codecs
import gc
import os
import stat
import sys
import time
from collections.abc import Iterator, Sequence

from preflight.errors import UsageError
from preflight.model.input_limits import REPORT, InputLimit, parse_json
from preflight.system.files import why
from preflight.system.waiting import wait_for

STDIN = "-"
WRITER_S = 30.0  # what writes a pipe may be slow; one that says nothing for so long says nothing
PIECE_BYTES = 1 << 20
MARKS = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))


def read_input(path: str, limit: InputLimit) -> str:
    """Return the text of the file `path`, or of stdin for `-`.

    Raise UsageError if the input can't be read, is larger than `limit`, or is a pipe without data.
    """
    return as_text(read_bytes(path, limit))


def as_text(data: bytes) -> str:
    """Return `data` as text, decoded as UTF-8 or UTF-16. Invalid bytes are replaced."""
    encoding = next((name for mark, name in MARKS if data.startswith(mark)), "utf-8")
    return data.decode(encoding, "replace")


def read_bytes(path: str, limit: InputLimit) -> bytes:
    """Return the content of the file `path`, or of stdin for `-`.

    Raise UsageError if the input can't be read, is larger than `limit`, or is a pipe without data.
    """
    try:
        if path == STDIN:
            data = read_descriptor(sys.stdin.fileno(), limit)
        else:
            # A FIFO without a writer, or a link to /proc/kmsg, would be waited for without end.
            fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
            try:
                data = read_descriptor(fd, limit)
            finally:
                os.close(fd)
    except (OSError, ValueError) as error:  # a path with a NUL byte is a ValueError
        raise UsageError(f"{path}: can't be read: {why(error)}") from None
    if len(data) > limit.most_bytes:
        raise UsageError(f"{path}: {limit.too_large()}")
    return data


def read_descriptor(fd: int, limit: InputLimit) -> bytes:
    """Return the content of the descriptor `fd`.

    Read at most one byte more than `limit` allows. Raise OSError if no data arrives within WRITER_S seconds.
    """
    is_file = stat.S_ISREG(os.fstat(fd).st_mode)
    data = bytearray()
    until = time.monotonic() + WRITER_S
    while len(data) <= limit.most_bytes:
        if not is_file and not wait_for([fd], (), max(0.0, until - time.monotonic())):
            raise TimeoutError(None, f"nothing came for {WRITER_S:.0f} s")
        piece = os.read(fd, PIECE_BYTES)
        if not piece:
            break
        data += piece
        until = time.monotonic() + WRITER_S
    return bytes(data)


def report_paths(arguments: Sequence[str]) -> Iterator[str]:
    """Yield the given files, and every *.json file below the given folders.

    Raise UsageError if a path does not exist.
    """
    for argument in arguments:
        if os.path.isdir(argument):
            for folder, folders, files in os.walk(argument):
                folders.sort()
                yield from (os.path.join(folder, name) for name in sorted(files) if name.endswith(".json"))
        elif os.path.exists(argument):
            yield argument
        else:
            raise UsageError(f"{argument}: there is no such file or directory")


def read_reports(paths: Iterator[str]) -> Iterator[tuple[str, object, str]]:
    """Yield (path, document, problem) for each report, in the order of `paths`.

    `problem` says why the file can't be read, or is "".
    """
    for number, path in enumerate(paths):
        document, problem = _document(path)
        yield path, document, problem
        if number % 64 == 0:
            gc.collect(0)  # a document's lists and dicts are many and short-lived


def _document(path: str) -> tuple[object, str]:
    if not os.path.isfile(path):
        return None, "no regular file"
    try:
        data = read_bytes(path, REPORT)
        return (parse_json(as_text(data), REPORT, path), "") if data else (None, "empty")
    except UsageError as error:
        return None, str(error).removeprefix(f"{path}: ").replace("not JSON", "no JSON", 1)
