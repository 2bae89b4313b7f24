"""What a process has open: files with their file systems and offsets, and the TCP connections behind its sockets."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from preflight.errors import UnreadableFact
from preflight.model.stuck_evidence import Connection, HeldLock, OpenFile
from preflight.system.machine import Machine

MOST_FILES = 1024
WRITES = 0o3  # O_WRONLY, O_RDWR
TCP_STATES = {
    1: "ESTABLISHED", 2: "SYN_SENT", 3: "SYN_RECV", 4: "FIN_WAIT1", 5: "FIN_WAIT2", 6: "TIME_WAIT", 7: "CLOSE",
    8: "CLOSE_WAIT", 9: "LAST_ACK", 10: "LISTEN", 11: "CLOSING",
}  # fmt: skip
ESCAPE = re.compile(r"\\([0-7]{3})")
UNINTERESTING = ("/dev/", "/proc/", "/sys/", "/memfd:", "/anon_hugepage", "/usr/lib/", "/lib/")


@dataclass(frozen=True, slots=True)
class Mount:
    """Where a file system is mounted."""

    point: str
    kind: str
    device: str  # major:minor


@dataclass(frozen=True, slots=True)
class Opened:
    """A descriptor of a file at one moment."""

    fd: int
    path: str
    offset: int
    is_written: bool


def list_opened(machine: Machine, pid: int) -> tuple[tuple[Opened, ...], frozenset[int]]:
    """Return the files that a process has open, and the inodes of its sockets; UnreadableFact where that is hidden."""
    files, sockets = [], set()
    names = machine.names(f"proc/{pid}/fd")
    for name in names[:MOST_FILES]:
        try:
            target = machine.link(f"proc/{pid}/fd/{name}")
            if match := re.fullmatch(r"socket:\[(\d{1,18})\]", target):
                sockets.add(int(match[1]))
            elif target.startswith("/") and not target.startswith(UNINTERESTING):
                offset, flags = parse_fdinfo(machine.text(f"proc/{pid}/fdinfo/{name}"))
                files.append(Opened(int(name), target, offset, bool(flags & WRITES)))
        except (UnreadableFact, ValueError):
            continue  # closed meanwhile
    return tuple(files), frozenset(sockets)


def parse_fdinfo(text: str) -> tuple[int, int]:
    """Parse the offset and the flags (octal) out of /proc/PID/fdinfo/FD; ValueError where they are not there."""
    values = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    if "pos" not in values or "flags" not in values:
        raise ValueError("no pos or flags")
    return int(values["pos"]), int(values["flags"], 8)


def moved(first: Iterable[Opened], last: Iterable[Opened], mounts: tuple[Mount, ...]) -> tuple[OpenFile, ...]:
    """Return the files that are open at last, with how far their offsets moved."""
    before = {(each.fd, each.path): each.offset for each in first}
    return tuple(
        OpenFile(e.fd, e.path, file_system_of(e.path, mounts), e.is_written, e.offset - before.get((e.fd, e.path), 0))
        for e in last
    )


def read_mounts(machine: Machine, pid: int, known: dict[str, tuple[Mount, ...]]) -> tuple[Mount, ...]:
    """Return the mounts of a process, none where they are hidden; those of a mount namespace are read once."""
    try:
        namespace = machine.link(f"proc/{pid}/ns/mnt")
        if namespace not in known:
            known[namespace] = parse_mountinfo(machine.text(f"proc/{pid}/mountinfo"))
        return known[namespace]
    except UnreadableFact:
        return ()


def parse_mountinfo(text: str) -> tuple[Mount, ...]:
    """Parse /proc/PID/mountinfo: optional fields stand before a dash, and the type behind it."""
    mounts = []
    for line in text.splitlines():
        before, dash, after = line.partition(" - ")
        fields, behind = before.split(), after.split()
        if dash and len(fields) >= 5 and behind:
            mounts.append(Mount(ESCAPE.sub(lambda m: chr(int(m[1], 8)), fields[4]), behind[0], fields[2]))
    return tuple(mounts)


def file_system_of(path: str, mounts: Iterable[Mount]) -> str:
    """Return the type of the file system that holds a path: that of the longest mount point above it."""
    best, kind = -1, ""
    for mount in mounts:
        point = mount.point.rstrip("/")
        if (path == point or path.startswith(f"{point}/")) and len(point) >= best:
            best, kind = len(point), mount.kind
    return kind


def parse_tcp(text: str) -> dict[int, Connection]:
    """Parse /proc/net/tcp or tcp6: connections by the inodes of their sockets; lines of another form are skipped."""
    found = {}
    for line in text.splitlines()[1:]:
        fields = line.split()
        try:
            sent, _, received = fields[4].partition(":")
            found[int(fields[9])] = Connection(
                _address(fields[1]), _address(fields[2]), TCP_STATES.get(int(fields[3], 16), "?"),
                int(sent, 16), int(received, 16), int(fields[6], 16),
            )  # fmt: skip
        except (ValueError, IndexError):
            continue
    return found


def _address(text: str) -> str:
    """Return `10.0.0.1:29500` of the kernel's hexadecimal words, each in the byte order of the machine (little)."""
    host, _, port = text.partition(":")
    words = bytes.fromhex(host)
    if len(words) not in (4, 16):
        raise ValueError(f"no address: {text}")
    packed = b"".join(words[i : i + 4][::-1] for i in range(0, len(words), 4))
    address = ipaddress.ip_address(packed)
    mapped = getattr(address, "ipv4_mapped", None)
    shown = str(mapped or address)
    return f"[{shown}]:{int(port, 16)}" if ":" in shown else f"{shown}:{int(port, 16)}"


def read_connections(machine: Machine, pid: int) -> dict[int, Connection]:
    """Return the TCP connections of a process's network namespace, by inode."""
    found: dict[int, Connection] = {}
    for name in ("tcp", "tcp6"):
        try:
            found |= parse_tcp(machine.text(f"proc/{pid}/net/{name}"))
        except UnreadableFact:
            continue
    return found


def parse_locks(text: str, waiting: Iterable[int], commands: Mapping[int, str]) -> tuple[HeldLock, ...]:
    """Parse /proc/locks: for which locks these processes wait, and who holds them; paths are not in it."""
    wanted, found = set(waiting), []
    holders: dict[str, int] = {}
    for line in text.splitlines():
        fields = line.split()
        try:
            if fields[1] == "->":
                pid = int(fields[5])
                if pid in wanted and fields[0] in holders:
                    holder = holders[fields[0]]
                    found.append(HeldLock(pid, holder, commands.get(holder, ""), ""))
            else:
                holders[fields[0]] = int(fields[4])
        except (ValueError, IndexError):
            continue
    return tuple(found)
