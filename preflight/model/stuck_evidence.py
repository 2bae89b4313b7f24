"""The data that one node collects about a hung job.

All amounts are changes during the short interval in which the processes are sampled.
"""
# The interval is called the watch, and the processes are sampled several times.

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass

from preflight.model.gap import Gap, known_or

SCHEMA_VERSION = 1
NOT_LOOKED = Gap("not read")
NO_PY_SPY = "py-spy is not installed"  # prefix of a gap's reason
NO_PTRACE = "ptrace is forbidden"  # prefix of a gap's reason if a permission is missing to read stacks
OF_C = re.compile(r"(?i)^$|\.(?:so(?:\.[\d.]+)?|c|cc|cpp|cxx|cu|h|hpp|inc|pyx|s)$")  # libraries and sources
GROUP_THREADS = ("gloo", "pt_gloo", "pt_nccl", "nccl")  # prefixes of the names of a process group's threads
WORKING_SHARE = 0.45  # of a GPU's power limit: a kernel that waits takes less
HELD_S = 1.0  # a profiler does not stop a process for so long
BUSY_S = 0.4  # of CPU time: a thread that used less during the watch needs no second look


@dataclass(frozen=True, slots=True)
class Frame:
    """One call on the stack of a Python process. With `--native`, functions in C or C++ are included too."""

    function: str
    file: str
    line: int

    def __str__(self) -> str:
        """Return a text such as `train.py:212, train_step`.

        For code at module level, the text has only the file and the line.
        """
        place = f"{posixpath.basename(self.file)}:{self.line}"
        return place if self.function == "<module>" else f"{place}, {self.short_name}"

    @property
    def short_name(self) -> str:
        """The function's name, without enclosing classes and functions."""
        return self.function.rpartition(">.")[2].rpartition(".")[2] or self.function


@dataclass(frozen=True, slots=True)
class Stack:
    """The stack of a thread, with the innermost call first."""

    tid: int
    thread: str
    has_gil: bool
    frames: tuple[Frame, ...]

    @property
    def python_frames(self) -> tuple[Frame, ...]:
        """The Python frames of the stack, without C frames."""
        return tuple(each for each in self.frames if not OF_C.search(each.file))


@dataclass(frozen=True, slots=True)
class ThreadState:
    """A thread's state, as the kernel reports it.

    `wait_channel` is the kernel function in which the thread waits, or "" if the thread runs.
    """

    tid: int
    name: str
    state: str
    wait_channel: str
    cpu_s: float  # user and system, during the watch
    wakes: int | Gap  # voluntary context switches during the watch
    asleep_s: float | Gap  # since it last ran

    @property
    def may_have_run(self) -> bool:
        """Return whether the thread runs or may have run during the watch."""
        return self.state == "R" or self.wakes != 0

    @property
    def is_held(self) -> bool:
        """Return whether the thread is stopped. A short stop by a sampling profiler does not count."""
        is_moment = isinstance(self.asleep_s, float) and self.asleep_s < HELD_S and self.wakes != 0
        return self.state in "Tt" and not is_moment

    def rests(self, rest_s: float) -> bool:
        """Return whether the thread has slept for at least `rest_s` seconds.

        If the thread's sleep time is unknown, return whether the thread slept during the entire watch.
        """
        if self.state == "R":
            return False
        if isinstance(self.asleep_s, float):
            return self.asleep_s >= rest_s
        return self.wakes == 0 and self.cpu_s == 0


@dataclass(frozen=True, slots=True)
class OpenFile:
    """A file that a process has open. Pipes and sockets are not included."""

    fd: int
    path: str
    file_system: str  # its type: nfs4, ext4, fifo, ...; "" where the mount was not found
    is_written: bool
    moved_bytes: int  # by how much its offset moved during the watch


@dataclass(frozen=True, slots=True)
class Connection:
    """A TCP connection of a process, as listed in /proc/net/tcp."""

    local: str
    remote: str
    state: str
    send_queue_bytes: int  # not acknowledged or not yet sent; the smaller value of start and end of the watch
    receive_queue_bytes: int  # arrived and not yet read
    retransmits: int  # of the segment that is not acknowledged

    @property
    def local_host(self) -> str:
        """The local address without its port."""
        return self.local.rpartition(":")[0]

    @property
    def remote_host(self) -> str:
        """The remote address without its port."""
        return self.remote.rpartition(":")[0]


@dataclass(frozen=True, slots=True)
class Process:
    """A process of the job."""

    pid: int
    parent_pid: int
    name: str
    command: str  # values that look like secrets are replaced
    state: str
    age_s: float
    threads: tuple[ThreadState, ...]
    stacks: tuple[Stack, ...] | Gap
    earlier_stacks: tuple[Stack, ...] | Gap  # at the beginning of the watch
    files: tuple[OpenFile, ...] | Gap
    connections: tuple[Connection, ...] | Gap
    is_data_worker: bool = False  # according to the name that torch gives it (2.6 and newer)
    moved_bytes: int = 0  # read and written by its calls during the watch

    @property
    def main_thread(self) -> ThreadState | None:
        """The main thread, or None if the process has ended."""
        return next((thread for thread in self.threads if thread.tid == self.pid), None)

    @property
    def main_stack(self) -> Stack | None:
        """The main thread's stack, or None if the stack was not read."""
        stacks = known_or(self.stacks, ())
        by_tid = next((stack for stack in stacks if stack.tid == self.pid), None)
        return by_tid or next((stack for stack in stacks if stack.thread == "MainThread"), None)

    @property
    def keeps_its_stack(self) -> bool:
        """Return whether the main thread's Python stack is the same at the start and at the end of the watch."""
        first, last = (
            next((stack.python_frames for stack in known_or(stacks, ()) if stack.tid == self.pid), ())
            for stacks in (self.earlier_stacks, self.stacks)
        )
        return bool(first) and first == last

    @property
    def was_read_once(self) -> bool:
        """Return whether the stacks were read only at the end of the watch."""
        return isinstance(self.earlier_stacks, Gap) and not isinstance(self.stacks, Gap)

    @property
    def busiest_changing_thread(self) -> ThreadState | None:
        """The busiest thread whose Python stack changed during the watch, or None if no stack changed."""
        first, last = (
            {stack.tid: stack.python_frames for stack in known_or(stacks, ())}
            for stacks in (self.earlier_stacks, self.stacks)
        )
        changing = [each for each in self.threads if first.get(each.tid) and last.get(each.tid)
                    and first[each.tid] != last[each.tid]]  # fmt: skip
        return max(changing, key=lambda each: each.cpu_s, default=None)

    @property
    def native_cpu_s(self) -> float:
        """The CPU time in seconds of the threads that run no Python, such as threads of numpy.

        The time is 0 if the process uses NCCL or if the stacks were not read.
        """
        # NCCL's threads always use CPU time.
        if isinstance(self.stacks, Gap) or self.uses_nccl:
            return 0.0
        known = {self.pid, *(stack.tid for stack in self.stacks)}
        own = [each for each in self.threads if each.tid not in known and not each.name.startswith(GROUP_THREADS)]
        return sum(each.cpu_s for each in own)

    @property
    def is_in_group(self) -> bool:
        """Return whether the process has threads of a torch process group."""
        return any(thread.name.startswith(GROUP_THREADS) for thread in self.threads)

    @property
    def uses_nccl(self) -> bool:
        """Return whether the process has an NCCL process group, whose collectives run on the GPU."""
        return any(thread.name.startswith("pt_nccl") for thread in self.threads)

    @property
    def serves_a_data_loader(self) -> bool:
        """Return whether the process is a DataLoader worker, according to its name or its stack."""
        stack = self.main_stack
        return self.is_data_worker or (
            stack is not None and any(frame.function.endswith("_worker_loop") for frame in stack.frames)
        )

    @property
    def fastest_written_file(self) -> OpenFile | None:
        """The file that the process writes fastest, or None if the process writes no file."""
        moving = [each for each in known_or(self.files, ()) if each.is_written and each.moved_bytes > 0]
        return max(moving, key=lambda each: each.moved_bytes, default=None)


@dataclass(frozen=True, slots=True)
class OutputTail:
    """The last lines of a rank's output, if the output goes to a file."""

    path: str
    lines: tuple[str, ...]
    silent_s: float


@dataclass(frozen=True, slots=True)
class RankProcess:
    """A rank and the processes that it started."""

    rank: int | Gap
    rank_source: str  # the variable that says so, or how it was concluded
    world_size: int | Gap
    local_world_size: int | Gap
    process: Process
    helpers: tuple[Process, ...]
    output: OutputTail | Gap
    name: str = ""  # as a serving engine calls it: Worker_TP1


@dataclass(frozen=True, slots=True)
class Orphan:
    """A process that a rank started and that still runs after the rank ended."""

    rank: int
    process: Process


@dataclass(frozen=True, slots=True)
class HeldLock:
    """A file lock for which a process of the job waits, and the process that holds it."""

    waiting_pid: int
    holding_pid: int
    holder: str  # the name of the holding process; "" if it is not visible
    path: str  # of the locked file; "" if it is not known


@dataclass(frozen=True, slots=True)
class GpuState:
    """The state of a GPU, as NVML reports it."""

    nvml_index: int
    uuid: str | Gap
    utilization_percent: float | Gap
    power_w: float | Gap
    power_limit_w: float | Gap
    sm_clock_mhz: float | Gap

    @property
    def works(self) -> bool | None:
        """Return whether the GPU draws as much power as a computing GPU. Return None if the power is not known."""
        if isinstance(self.power_w, Gap) or isinstance(self.power_limit_w, Gap):
            return None
        return self.power_w >= WORKING_SHARE * self.power_limit_w


@dataclass(frozen=True, slots=True)
class RasRank:
    """A rank that the NCCL RAS service names, with the rank's node and pid if these are known."""

    rank: int
    pid: int
    node: str
    what: str  # the difference from other ranks: "has launched 9 AllReduce operations, others 10"

    def __str__(self) -> str:
        """Return a text such as `rank 3 (process 9 on b) has launched 9 AllReduce operations, others 10`."""
        process = f" (process {self.pid} on {self.node})" if self.pid else ""
        return f"rank {self.rank}{process} {self.what}"


@dataclass(frozen=True, slots=True)
class RasAnswer:
    """The reply of the NCCL RAS service: the ranks that are missing or behind."""

    address: str
    nccl_version: str
    text: str
    missing: tuple[RasRank, ...]
    behind: tuple[RasRank, ...]
    is_level: bool  # RAS has data of every rank, and all have launched the same operations


@dataclass(frozen=True, slots=True)
class RecordedLag:
    """Ranks that are behind other ranks, or that run another collective.

    The dumps of the flight recorder show these differences.
    """

    ranks: tuple[str, ...]
    what: str


@dataclass(frozen=True, slots=True)
class LoadedLibrary:
    """A library that the ranks have loaded. preflight knows bugs of some versions of this library."""

    component: str
    version: str  # "" where it names none
    path: str
    how: str = ""  # the variable that chose it, such as LD_PRELOAD
    pids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class JobSoftware:
    """The library versions that a node's ranks have loaded, and the node's CPU, kernel, driver and GPUs.

    A value that is not known is "".
    """

    libraries: tuple[LoadedLibrary, ...]
    architecture: str
    kernel: str
    driver: str
    gpus: tuple[str, ...]  # the names of the models

    @property
    def versions(self) -> dict[str, tuple[str, ...]]:
        """The loaded versions of each component. The ranks may have loaded several versions of a component."""
        found: dict[str, tuple[str, ...]] = {}
        for each in self.libraries:
            if each.version and each.version not in found.get(each.component, ()):
                found[each.component] = (*found.get(each.component, ()), each.version)
        found |= {name: (value,) for name, value in (("driver", self.driver), ("kernel", self.kernel)) if value}
        return found

    @property
    def twice(self) -> str:
        """A text that names a component of which several versions are loaded, or "" if there is none."""
        for name, several in self.versions.items():
            if len(several) > 1:
                own = [each for each in self.libraries if each.component == name and each.version]
                paths = (f"{each.version} ({each.how + ' ' if each.how else ''}{each.path})" for each in own)
                return f"several versions of {name} are loaded: {', '.join(paths)}"
        return ""


@dataclass(frozen=True, slots=True)
class NodeEvidence:
    """The data about a hung job from one node."""

    schema_version: int
    host: str
    taken_at: str  # RFC 3339, UTC
    watched_s: float
    rest_s: float  # a rank that has slept for so long at the end of the watch is blocked
    job: str  # what its ranks have in common: a scheduler's job, a run id, the rendezvous, or a launcher's pid
    ranks: tuple[RankProcess, ...]
    orphans: tuple[Orphan, ...]
    locks: tuple[HeldLock, ...]
    gpus: tuple[GpuState, ...] | Gap
    ras: RasAnswer | Gap
    recorded: RecordedLag | Gap
    xid_lines: tuple[str, ...] | Gap  # of the kernel log; their age is not known here
    not_seen: tuple[str, ...]  # what could not be read, and what would allow it
    software: JobSoftware | Gap = NOT_LOOKED
    servers: tuple[RankProcess, ...] = ()  # no ranks: processes that give an engine's ranks work, nearest first

    @property
    def missing_ranks(self) -> tuple[int, ...]:
        """The ranks that should run on this node but have no process."""
        numbers = {each.rank for each in self.ranks if isinstance(each.rank, int)}
        size = next((each.local_world_size for each in self.ranks if isinstance(each.local_world_size, int)), 0)
        if not numbers or not 0 < size <= 4096:
            return ()
        first = min(numbers) // size * size
        return tuple(number for number in range(first, first + size) if number not in numbers)
