"""Write results atomically: a reader always finds the complete old file or the complete new file."""
# `check_writable` resolves the path of an output before the run. The result goes to the resolved path at the end.

from __future__ import annotations

import contextlib
import errno
import os
import stat
import time
from dataclasses import dataclass

from preflight.errors import OutputError, UsageError
from preflight.system.secrets import hide
from preflight.system.waiting import wait_until_writable

MODE = 0o666  # less the umask, as a shell's redirection would give it
PRIVATE = 0o600
STALE = ".stale"
READER_S = 2.0  # what reads a FIFO may be started after us
DRAIN_S = 5.0  # a reader that takes nothing for so long has gone
MOST_LINKS = 40  # as the kernel has it
NO_READER = "no process reads this FIFO"


@dataclass(frozen=True, slots=True)
class _Output:
    """The target of an output path.

    The target is a file to replace, or a target that can only be written to, such as a FIFO or a device.
    """

    target: str
    fd: int = -1  # of the latter: kept open, so that its reader sees one document and no early end


_settled: dict[str, _Output] = {}  # by path, for this process: an output is looked at once


def check_writable(path: str) -> None:
    """Raise UsageError if `path` can't be written. Call this function before a run."""
    try:
        output = _settle(path)
        if output.fd < 0:
            temporary = _temporary(output.target)
            os.close(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, MODE))
            os.unlink(temporary)
    except (OSError, ValueError) as error:  # a NUL byte is a ValueError
        raise UsageError(f"{path}: can't be written: {why(error)}") from None


def write_atomically(path: str, text: str, mode: int = MODE) -> None:
    """Write `text` to a temporary file next to `path`, and rename the temporary file to `path`.

    Raise OutputError if the file can't be written.
    """
    # A symbolic link is followed, unless another user created the link. A target that is not a regular file is written
    # directly.
    write_bytes_atomically(path, encoded(text), mode)


def write_bytes_atomically(path: str, data: bytes, mode: int = MODE) -> None:
    """Write `data` to the file `path`, in the same way as `write_atomically`."""
    try:
        output = _settled.get(path) or _settle(path)
        if output.fd >= 0:
            _write_within(output.fd, data)
        else:
            _replace(output.target, data, mode)
    except (OSError, ValueError) as error:
        raise OutputError(f"{path}: could not be written: {why(error)}") from None


def is_replaceable(path: str) -> bool:
    """Return whether a second write to the output `path` replaces the first write.

    The result is False for a pipe or a device. Call `check_writable` for the path first.
    """
    return path not in _settled or _settled[path].fd < 0


def same_file(one: str, other: str) -> bool:
    """Return whether `one` and `other` are paths of the same file. The result is False for devices and FIFOs."""
    try:
        first, second = _settled.get(one) or _settle(one), _settled.get(other) or _settle(other)
    except (OSError, ValueError):
        return False
    return first.fd < 0 and first.target == second.target


def set_aside(path: str) -> str | None:
    """Rename the file `path` to `PATH.stale`. Return the new name, or None if there is no file."""
    output = _settled.get(path)
    if output is not None and output.fd >= 0:
        return None
    absolute = path if output is None or os.path.islink(path) else output.target
    try:
        if not stat.S_ISREG(os.stat(absolute).st_mode):
            return None  # /dev/null is not ours to rename
        os.rename(absolute, absolute + STALE)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise OutputError(f"{path}: could not be renamed to {path}{STALE}: {why(error)}") from None
    return path + STALE


def encoded(text: str) -> bytes:
    """Return `text` as UTF-8 bytes, with this process's secrets replaced."""
    text = hide(text)
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-8", "backslashreplace")


def why(error: OSError | ValueError) -> str:
    """Return the text of an error. For an OSError, return the system's reason in lowercase."""
    if not isinstance(error, OSError):
        return str(error)
    reason = error.strerror or type(error).__name__
    return reason[0].lower() + reason[1:]


def _settle(path: str) -> _Output:
    """Return the target of the output path `path`, and store the target.

    The result of the run therefore goes to the same target at the end of the run.
    """
    target = _followed(path)
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        mode = stat.S_IFREG
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, "is a directory")
    if stat.S_ISSOCK(mode):
        raise OSError(errno.ENXIO, "is a socket")
    output = _Output(target) if stat.S_ISREG(mode) else _Output(target, _open_special(path))
    _settled[path] = output
    return output


def _open_special(path: str) -> int:
    """Open a target that can't be replaced, for writing, and return the descriptor.

    Wait at most READER_S seconds for a reader.
    """
    until = time.monotonic() + READER_S
    while True:
        try:
            return os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
            if time.monotonic() > until:
                raise OSError(errno.ENXIO, NO_READER) from None
        time.sleep(0.02)


def _write_within(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        if not wait_until_writable(fd, DRAIN_S):
            raise OSError(errno.ETIMEDOUT, f"its reader took nothing for {DRAIN_S:.0f} s")
        with contextlib.suppress(BlockingIOError):
            view = view[os.write(fd, view) :]


def _followed(path: str) -> str:
    """Return the absolute path without links. Raise OSError if one of the links was planted.

    In a sticky directory such as /tmp, anyone may create files, so another user may plant a link. In such a directory,
    this function follows a link only if this user or the directory's owner made the link. The kernel has the same rule
    with fs.protected_symlinks.
    """
    at, rest, links = "/", _reversed_parts(_absolute(path)), 0
    while rest:
        name = rest.pop()
        if name == "..":
            at = os.path.dirname(at)
            continue
        here = os.path.join(at, name)
        try:
            status = os.lstat(here)
        except FileNotFoundError:
            status = None
        if status is None or not stat.S_ISLNK(status.st_mode):
            at = here
            continue
        links += 1
        if links > MOST_LINKS:
            raise OSError(errno.ELOOP, "too many links")
        _refuse_planted(at, here, status.st_uid)
        leads_to = os.readlink(here)
        at = "/" if leads_to.startswith("/") else at
        rest += _reversed_parts(leads_to)
    return at


def _absolute(path: str) -> str:
    try:
        return path if path.startswith("/") else os.path.join(os.getcwd(), path)
    except FileNotFoundError:
        raise FileNotFoundError(errno.ENOENT, "the working directory was deleted") from None


def _reversed_parts(path: str) -> list[str]:
    return [part for part in reversed(path.split("/")) if part not in ("", ".")]


def _refuse_planted(directory: str, link: str, owner: int) -> None:
    place = os.stat(directory)
    anybody_writes = place.st_mode & stat.S_ISVTX and place.st_mode & stat.S_IWOTH
    if anybody_writes and owner not in (os.geteuid(), place.st_uid):
        raise OSError(errno.EACCES, f"the link {link} is another user's (uid {owner}), where all may write")


def _replace(target: str, data: bytes, mode: int) -> None:
    temporary = _temporary(target)
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        with open(descriptor, "wb") as file:
            if mode != PRIVATE:
                _keep_mode(target, file.fileno())
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.rename(temporary, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def _keep_mode(target: str, new: int) -> None:
    """Give the new file the mode of the file that it replaces.

    If the old file belongs to another user, its mode can remove permissions but not add them.
    """
    try:
        old = os.lstat(target)
    except FileNotFoundError:
        return
    now = stat.S_IMODE(os.fstat(new).st_mode)
    kept = stat.S_IMODE(old.st_mode) & 0o777
    os.fchmod(new, kept if old.st_uid == os.geteuid() else kept & now)


def _temporary(target: str) -> str:
    """Return a temporary name for the file `target`, different at each call.

    Two runs in one directory therefore never share a temporary file.
    """
    directory, name = os.path.split(target)
    start = os.fsdecode(os.fsencode(name)[:200])
    return os.path.join(directory, f".{start}.{os.urandom(6).hex()}")
