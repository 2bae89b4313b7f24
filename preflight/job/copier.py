"""Move the job's output to preflight's output, and copy the output into files.

A separate process, the copier, runs this code. If the copier is killed, another copier continues.
"""
# For a pipe, the bytes are duplicated (tee(2)) and kept, and then moved within the kernel (splice(2)). This process
# therefore never holds the only copy. With a terminal, this process briefly holds the only copy.

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import select

from preflight.job.kept import Kept

PIECE_BYTES = 1 << 16
TRIES = 3  # of writing: what a pipe, a socket or a terminal refuses so often has no reader any more
IS_WRITING, LOST_READER = range(2)

_libc = ctypes.CDLL(None, use_errno=True)


class LostReader(Exception):
    """Raised in the copier process if the reader of preflight's output has ended."""


def copy(source: int, target: int, is_terminal: bool, kept: Kept, counts: memoryview[int]) -> None:
    """Copy the job's output from `source` to `target` and into `kept`, until the job closes its output.

    If the reader of preflight's output ends first, the job gets SIGPIPE.
    """
    # `counts` is shared memory. A later copier reads there whether this copier was writing.
    counts[IS_WRITING] = 0
    with contextlib.suppress(LostReader):
        if is_terminal:
            while data := _read_terminal(source):
                kept.add(data)
                counts[IS_WRITING] = 1
                _write(target, data, counts)
                counts[IS_WRITING] = 0
            return
        copies, duplicate = os.pipe()
        while size := _tee(source, duplicate):
            kept.add(_read_whole(copies, size))
            counts[IS_WRITING] = 1
            _move(source, target, size, counts)
            counts[IS_WRITING] = 0


def _read_terminal(source: int) -> bytes:
    try:
        return os.read(source, PIECE_BYTES)
    except OSError as error:
        if error.errno != errno.EIO:  # the last who had the job's terminal has gone
            raise
        return b""


def _tee(source: int, duplicate: int) -> int:
    size: int = _libc.tee(source, duplicate, ctypes.c_size_t(PIECE_BYTES), 0)
    if size < 0:
        raise OSError(ctypes.get_errno(), "tee")
    return size


def _read_whole(pipe: int, size: int) -> bytes:
    data = b""
    while len(data) < size:
        data += os.read(pipe, size - len(data))
    return data


def _move(source: int, target: int, size: int, counts: memoryview[int]) -> None:
    """Move bytes from one pipe into another, or into a socket."""
    while size:
        try:
            size -= os.splice(source, target, size)
        except BlockingIOError:  # whoever has the other end made it so
            _wait_for_room(target)
        except OSError:  # the reader has gone, or it is nothing that can be spliced into
            data = _read_whole(source, size)
            _write(target, data, counts)
            return


def _write(target: int, data: bytes, counts: memoryview[int]) -> None:
    rest, failures = memoryview(data), 0
    while rest:
        try:
            rest, failures = rest[os.write(target, rest) :], 0
        except BlockingIOError:
            _wait_for_room(target)
        except OSError as error:
            failures += 1
            if failures == TRIES:
                counts[LOST_READER] = 1
                raise LostReader from error


def _wait_for_room(target: int) -> None:
    room = select.poll()
    room.register(target, select.POLLOUT)
    room.poll()
