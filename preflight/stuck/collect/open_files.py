"""The open files of processes, and the TCP connections of their sockets."""

from __future__ import annotations

import contextlib
import ipaddress
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from preflight.errors import UnreadableFact
from preflight.model.gap import Gap, known_or
from preflight.model.placement import endpoint_text
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
    """A mounted file system, and its mount point."""

    point: str
    kind: str  # the type of the file system


@dataclass(frozen=True, slots=True)
class Descriptors:
    """The open file descriptors of a process at one moment."""

    files: dict[tuple[int, str], tuple[int, bool]]  # offset and whether it is written, by descriptor and path
    sockets: frozenset[int]  # by inode

    @classmethod
    def read(cls, machine: Machine, pid: int) -> Descriptors:
        """Return the open descriptors of process `pid`. Raise UnreadableFact if the kernel hides the descriptors."""
        files, sockets = {}, set()
        for name in machine.names(f"proc/{pid}/fd")[:MOST_FILES]:
            try:
                target = machine.link(f"proc/{pid}/fd/{name}")
                if match := re.fullmatch(r"socket:\[(\d{1,18})\]", target):
                    sockets.add(int(match[1]))
                elif target.startswith("/") and not target.startswith(UNINTERESTING):
                    offset, flags = parse_fdinfo(machine.text(f"proc/{pid}/fdinfo/{name}"))
                    files[int(name), target] = (offset, bool(flags & WRITES))
            except (UnreadableFact, ValueError):
                continue  # closed meanwhile
        return cls(files, frozenset(sockets))


class FileWatch:
    """The open files and connections of processes, read at the start and again later.

    The comparison shows which offsets moved, and which data stayed in a send queue.
    """

    def __init__(self, machine: Machine, pids: Iterable[int]) -> None:
        self.machine = machine
        self.first = {pid: self.descriptors(pid) for pid in pids}
        self.first_connections = self.connections()
        self.mounts: dict[str, tuple[Mount, ...]] = {}  # by mount namespace: each is read once

    def descriptors(self, pid: int) -> Descriptors | Gap:
        """Return the open descriptors of process `pid`, or a Gap if the descriptors can't be read."""
        try:
            return Descriptors.read(self.machine, pid)
        except UnreadableFact as error:
            return Gap(str(error))

    def files(self, pid: int) -> tuple[OpenFile, ...] | Gap:
        """Return the open files of process `pid`, and how far the offset of each file has moved since the start.

        The offsets are in bytes. The result is a Gap if a read failed.
        """
        first, last = self.first[pid], self.descriptors(pid)
        if isinstance(first, Gap):
            return first
        if isinstance(last, Gap):
            return last
        mounts: tuple[Mount, ...] = ()
        with contextlib.suppress(UnreadableFact):
            namespace = self.machine.link(f"proc/{pid}/ns/mnt")
            if namespace not in self.mounts:
                self.mounts[namespace] = parse_mountinfo(self.machine.text(f"proc/{pid}/mountinfo"))
            mounts = self.mounts[namespace]
        return tuple(
            OpenFile(fd, path, file_system_of(path, mounts), is_written, offset - first.files.get((fd, path), (0,))[0])
            for (fd, path), (offset, is_written) in last.files.items()
        )

    def connections(self) -> dict[int, tuple[Connection, ...] | Gap]:
        """Return the TCP connections of each watched process, as {pid: connections}.

        A process with hidden descriptors has a Gap.
        """
        tables: dict[str, dict[int, Connection]] = {}
        found: dict[int, tuple[Connection, ...] | Gap] = {}
        for pid, own in self.first.items():
            if isinstance(own, Gap):
                found[pid] = own
                continue
            namespace = str(pid)
            with contextlib.suppress(UnreadableFact):
                namespace = self.machine.link(f"proc/{pid}/ns/net")
            if namespace not in tables:
                tables[namespace] = read_connections(self.machine, pid)
            table = tables[namespace]
            found[pid] = tuple(table[inode] for inode in sorted(own.sockets) if inode in table)
        return found

    def waiting_connections(self) -> dict[int, tuple[Connection, ...] | Gap]:
        """Return the TCP connections of each process, as {pid: connections}.

        Each connection has the number of bytes that stayed in the send queue since the start. A process with hidden
        descriptors has a Gap.
        """
        queued = {
            (pid, each.local, each.remote): each.send_queue_bytes
            for pid, connections in self.first_connections.items()
            for each in known_or(connections, ())
        }
        found: dict[int, tuple[Connection, ...] | Gap] = {}
        for pid, connections in self.connections().items():
            found[pid] = connections
            if not isinstance(connections, Gap):
                found[pid] = tuple(
                    replace(
                        each,
                        send_queue_bytes=min(each.send_queue_bytes, queued.get((pid, each.local, each.remote), 0)),
                    )
                    for each in connections
                )
        return found


def read_moved_bytes(machine: Machine, pid: int) -> int | None:
    """Return how many bytes process `pid` has read and written, or None if the number is hidden."""
    try:
        return sum(int(line.split()[1]) for line in machine.text(f"proc/{pid}/io").splitlines()[:2])
    except (UnreadableFact, ValueError, IndexError):
        return None


def parse_fdinfo(text: str) -> tuple[int, int]:
    """Return the offset and the flags in the text of /proc/PID/fdinfo/FD. Raise ValueError if a value is missing."""
    values = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    if "pos" not in values or "flags" not in values:
        raise ValueError("no pos or flags")
    return int(values["pos"]), int(values["flags"], 8)


def parse_mountinfo(text: str) -> tuple[Mount, ...]:
    """Return the mounts in the text of /proc/PID/mountinfo, in order."""
    mounts = []
    for line in text.splitlines():
        before, dash, after = line.partition(" - ")
        fields, behind = before.split(), after.split()
        if dash and len(fields) >= 5 and behind:
            mounts.append(Mount(ESCAPE.sub(lambda m: chr(int(m[1], 8)), fields[4]), behind[0]))
    return tuple(mounts)


def file_system_of(path: str, mounts: Iterable[Mount]) -> str:
    """Return the type of the file system that holds `path`, from the list `mounts`."""
    best, kind = -1, ""
    for mount in mounts:
        point = mount.point.rstrip("/")
        if (path == point or path.startswith(f"{point}/")) and len(point) >= best:
            best, kind = len(point), mount.kind
    return kind


def parse_tcp(text: str) -> dict[int, Connection]:
    """Return the TCP connections in the text of /proc/net/tcp or tcp6, as {socket inode: connection}."""
    found = {}
    for line in text.splitlines()[1:]:
        fields = line.split()
        try:
            ends = []
            for host, port in (fields[1].split(":"), fields[2].split(":")):
                words = bytes.fromhex(host)  # of 4 bytes each, in the byte order of the machine (little)
                address = ipaddress.ip_address(b"".join(words[i : i + 4][::-1] for i in range(0, len(words), 4)))
                shown = str(getattr(address, "ipv4_mapped", None) or address)
                ends.append(endpoint_text(shown, int(port, 16)))
            sent, _, received = fields[4].partition(":")
            state = TCP_STATES.get(int(fields[3], 16), "?")
            found[int(fields[9])] = Connection(
                ends[0], ends[1], state, int(sent, 16), int(received, 16), int(fields[6], 16)
            )
        except (ValueError, IndexError):
            continue
    return found


def read_connections(machine: Machine, pid: int) -> dict[int, Connection]:
    """Return {socket inode: connection} for the network namespace of process `pid`."""
    found: dict[int, Connection] = {}
    for name in ("tcp", "tcp6"):
        try:
            found |= parse_tcp(machine.text(f"proc/{pid}/net/{name}"))
        except UnreadableFact:
            continue
    return found


def read_locks(machine: Machine, pids: Sequence[int]) -> tuple[HeldLock, ...]:
    """Return the file locks for which the processes `pids` wait.

    Each lock has the file, and the process that holds the lock.
    """
    locks = []
    with contextlib.suppress(UnreadableFact):
        for waits, holds, inode in parse_locks(machine.text("proc/locks"), pids):
            holder = ""
            with contextlib.suppress(UnreadableFact):  # the command line would take the process's memory lock
                holder = machine.text(f"proc/{holds}/comm")
            locks.append(HeldLock(waits, holds, holder, _locked_file(machine, holds, inode)))
    return tuple(locks)


def _locked_file(machine: Machine, pid: int, inode: str) -> str:
    """Return the path of the file that a process has locked; "" if the process's descriptors are hidden."""
    with contextlib.suppress(UnreadableFact):
        for name in machine.names(f"proc/{pid}/fd")[:MOST_FILES]:
            with contextlib.suppress(UnreadableFact):  # closed meanwhile
                info = machine.text(f"proc/{pid}/fdinfo/{name}")
                if any(line.startswith("lock:") and inode in line.split() for line in info.splitlines()):
                    return machine.link(f"proc/{pid}/fd/{name}")
    return ""


def parse_locks(text: str, waiting: Iterable[int]) -> tuple[tuple[int, int, str], ...]:
    """Return the file locks that the processes `waiting` wait for. `text` is from /proc/locks.

    Each item has the waiting pid, the holding pid, and the file's device and inode ("08:01:1234").
    """
    wanted, found = set(waiting), []
    holders: dict[str, int] = {}
    for line in text.splitlines():
        fields = line.split()
        try:
            if fields[1] != "->":
                holders[fields[0]] = int(fields[4])
            elif int(fields[5]) in wanted and fields[0] in holders:
                found.append((int(fields[5]), holders[fields[0]], fields[6]))
        except (ValueError, IndexError):
            continue
    return tuple(found)
