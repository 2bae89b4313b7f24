"""Write results so that a reader finds the old file or the new one, whole, whatever happens in between."""

from __future__ import annotations

import codecs
import contextlib
import os
import secrets
import sys
from pathlib import Path

from preflight.errors import OutputError, UsageError

MODE = 0o666  # less the umask, as a shell's redirection would give it
STALE = ".stale"
STDIN = "-"
MOST_INPUT_BYTES = 64 << 20
MARKS = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))


def write_atomically(path: str, text: str) -> None:
    """Write the text to a temporary file beside the target, flush it to the disk and rename it.

    A symbolic link is followed, so that the file that it points to is replaced and the link stays. What is no regular
    file (/dev/stdout, a FIFO) can't be replaced and is written to. OutputError: one line; nothing is left half-written.
    """
    data = text.encode("utf-8", "surrogateescape")  # interface names need not be UTF-8
    target = os.path.realpath(path)
    try:
        if os.path.exists(target) and not os.path.isfile(target):
            Path(target).write_bytes(data)
        else:
            _replace(target, data)
    except OSError as error:
        raise OutputError(f"{path}: could not be written: {_why(error)}") from None


def read_input(path: str) -> str:
    """Return the text of a file, or of stdin for `-`; UsageError where it can't be read or is no text at all."""
    try:
        if path == STDIN:
            data = sys.stdin.buffer.read(MOST_INPUT_BYTES + 1)
        else:
            with open(path, "rb") as file:
                data = file.read(MOST_INPUT_BYTES + 1)
    except (OSError, ValueError) as error:  # a path with a NUL byte is a ValueError
        why = _why(error) if isinstance(error, OSError) else str(error)
        raise UsageError(f"{path}: can't be read: {why}") from None
    if len(data) > MOST_INPUT_BYTES:
        raise UsageError(f"{path}: larger than {MOST_INPUT_BYTES >> 20} MiB, which no such file is")
    encoding = next((name for mark, name in MARKS if data.startswith(mark)), "utf-8")
    return data.decode(encoding, "replace")


def set_aside(path: str) -> str | None:
    """Rename a file to `PATH.stale`, replacing an older one; return the new name, None where there was no file."""
    stale = path + STALE
    try:
        os.rename(path, stale)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise OutputError(f"{path}: could not be renamed to {stale}: {_why(error)}") from None
    return stale


def check_writable(path: str) -> None:
    """Raise UsageError where the path can't be written, before a run spends minutes on what it then can't save."""
    target = os.path.realpath(path)
    try:
        if os.path.isdir(target):
            raise IsADirectoryError(None, "it is a directory")
        if os.path.exists(target) and not os.path.isfile(target):
            return
        temporary = _temporary(target)
        os.close(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, MODE))
        os.unlink(temporary)
    except OSError as error:
        raise UsageError(f"{path}: can't be written: {_why(error)}") from None


def _replace(target: str, data: bytes) -> None:
    temporary = _temporary(target)
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, MODE)
        with open(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.rename(temporary, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def _temporary(target: str) -> str:
    """Return a name of its own for every call: two runs in one directory must not meet in one temporary file."""
    directory, name = os.path.split(target)
    return os.path.join(directory, f".{name[:200]}.{secrets.token_hex(6)}")


def _why(error: OSError) -> str:
    reason = os.strerror(error.errno) if error.errno else str(error.strerror)
    return reason[0].lower() + reason[1:]
