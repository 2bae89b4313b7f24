"""Find and remove the files that NCCL leaves in /dev/shm."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from preflight.system.machine import Json
from preflight.system.processes import number_of

PREFIX = "nccl-"
SEGMENTS_SUFFIX = ".segments"  # of the file next to a trial's log that lists the segments which the trial mapped
INITIAL_PID_NAMESPACE = "pid:[4026531836]"  # PROC_PID_INIT_INO of include/linux/proc_ns.h
OTHERS_MAY_OPEN = 0o066
# NCCL says so of a file that this very process has made (mkstemp in ncclShmOpen), and leaves it, open nowhere.
UNUSABLE = re.compile(r"(?:failed to extend|Error while creating shared memory segment) (\S+/nccl-\w+) ")


@dataclass(frozen=True, slots=True)
class _Segment:
    name: str
    device: int
    inode: int
    uid: int
    mode: int
    size_bytes: int


def nccl_segments(shm: str = "/dev/shm", proc: str = "/proc") -> Json:
    """Return `{name, size_bytes, stale}` for each nccl-* file. `stale` is true only if no process can use the file."""
    # A file counts as used if a process that might use the file can't be inspected.
    segments = _segments(shm)
    if not segments:
        return []
    used = _in_use(segments, proc) if _sees_every_process(proc) else {segment.name for segment in segments}
    return [{"name": s.name, "size_bytes": s.size_bytes, "stale": s.name not in used} for s in segments]


def _segments(shm: str) -> tuple[_Segment, ...]:
    found = []
    for name in sorted(os.listdir(shm)):
        if name.startswith(PREFIX):
            try:
                status = os.lstat(os.path.join(shm, name))
            except FileNotFoundError:
                continue  # NCCL unlinks a segment as soon as both sides have it
            size_bytes = status.st_blocks * 512
            plain = os.fsencode(name).decode("utf-8", "backslashreplace")
            found.append(_Segment(plain, status.st_dev, status.st_ino, status.st_uid, status.st_mode, size_bytes))
    return tuple(found)


def _sees_every_process(proc: str) -> bool:
    with contextlib.suppress(OSError):
        return os.readlink(f"{proc}/self/ns/pid") == INITIAL_PID_NAMESPACE
    return False


def _in_use(segments: tuple[_Segment, ...], proc: str) -> set[str]:
    own = os.geteuid()
    used = {s.name for s in segments if own not in (0, s.uid)}  # hidepid= may hide that user's processes
    for pid in filter(str.isdigit, os.listdir(proc)):
        candidates = [s for s in segments if s.name not in used]
        if not candidates:
            break
        try:
            uids = _uids(f"{proc}/{pid}/status")
            candidates = [s for s in candidates if s.uid in uids or s.mode & OTHERS_MAY_OPEN]
            if candidates:
                inodes = set(_inodes(f"{proc}/{pid}"))
                used |= {s.name for s in candidates if (s.device, s.inode) in inodes}
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has ended
        except OSError:
            used |= {s.name for s in candidates}
    return used


def _uids(path: str) -> set[int]:
    """Return the real, effective, saved and file system uid of a process.

    Every user may read these uids, but not /proc/PID/maps.
    """
    with open(path, encoding="utf-8", errors="replace") as file:
        line = next((line for line in file if line.startswith("Uid:")), "")
    return set(map(int, line.split()[1:]))


def _inodes(process: str) -> Iterator[tuple[int, int]]:
    """Yield the device and inode of the nccl-* files that a process has mapped or open."""
    # First the descriptors: NCCL opens a segment, maps it and closes it, so it is missed by neither look.
    for fd in os.listdir(f"{process}/fd"):
        path = f"{process}/fd/{fd}"
        try:
            if f"/{PREFIX}" in os.readlink(path):  # asked first: to stat a file on a dead mount would stall
                status = os.stat(path)
                yield status.st_dev, status.st_ino
        except FileNotFoundError:
            continue
    with open(f"{process}/maps", encoding="utf-8", errors="replace") as file:
        for line in file:
            if f"/{PREFIX}" in line:
                _, _, _, device, inode, *_ = line.split()
                major, _, minor = device.partition(":")
                yield os.makedev(int(major, 16), int(minor, 16)), int(inode)


def has_segments(shm: str = "/dev/shm") -> bool:
    """Return whether the folder `shm` has any nccl-* file, or False if the folder can't be read."""
    with contextlib.suppress(OSError):
        return any(name.startswith(PREFIX) for name in os.listdir(shm))
    return False


def segments_of(pid: int, shm: str = "/dev/shm", proc: str = "/proc") -> frozenset[str]:
    """Return the paths of the nccl-* files in `shm` that process `pid` of preflight maps or holds open."""
    start = os.path.join(shm, PREFIX)
    found: set[str] = set()
    process = f"{proc}/{number_of(pid)}"
    with contextlib.suppress(OSError):
        for fd in os.listdir(f"{process}/fd"):
            with contextlib.suppress(OSError):
                found.add(os.readlink(f"{process}/fd/{fd}"))
    with contextlib.suppress(OSError), open(f"{process}/maps", encoding="utf-8", errors="surrogateescape") as file:
        found |= {line[line.index(start) :].rstrip("\n") for line in file if start in line}
    return frozenset(path for path in found if path.startswith(start) and not path.endswith(" (deleted)"))


def segments_of_all(pids: Iterable[int]) -> frozenset[str]:
    """Return the paths of the nccl-* files that the processes `pids` map or hold open."""
    return frozenset().union(*map(segments_of, pids)) if has_segments() else frozenset()


def noted_segments(folder: str, shm: str = "/dev/shm") -> frozenset[str]:
    """Return the nccl-* paths that are listed in the files of `folder` with the suffix SEGMENTS_SUFFIX."""
    found: set[str] = set()
    with contextlib.suppress(OSError):
        for note in Path(folder).glob(f"*{SEGMENTS_SUFFIX}"):
            found |= set(note.read_text(encoding="utf-8", errors="surrogateescape").split("\n"))
    start = os.path.join(shm, PREFIX)
    return frozenset(path for path in found if path.startswith(start) and "/" not in path.removeprefix(start))


def unusable_segments(lines: Iterable[str], shm: str = "/dev/shm") -> frozenset[str]:
    """Return the paths in `shm` that NCCL could not use, according to the warnings in `lines`.

    `lines` are lines of an NCCL log.
    """
    found = (match[1] for line in lines if " WARN " in line for match in UNUSABLE.finditer(line))
    return frozenset(path for path in found if os.path.dirname(path) == shm)


def remove_segments(paths: Iterable[str]) -> None:
    """Remove the shared-memory files at `paths` that belong to this user.

    A killed rank leaves such files behind.
    """
    for path in paths:
        with contextlib.suppress(OSError):
            if os.lstat(path).st_uid == os.geteuid():
                os.unlink(path)
