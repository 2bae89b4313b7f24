"""One node's evidence on a job that hangs: its ranks, where each is, and what could not be read.

`watch` is the time during which the processes were looked at several times; amounts are those of that time.
"""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass

from preflight.model.gap import Gap, known_or

SCHEMA_VERSION = 1
NO_PY_SPY = "py-spy is not installed"  # how the reason begins where no stack can be read
NO_PTRACE = "ptrace is forbidden"  # how the reason begins where stacks can't be read for want of a permission
OF_C = re.compile(r"(?i)^$|\.(?:so(?:\.[\d.]+)?|c|cc|cpp|cxx|cu|h|hpp|inc|pyx|s)$")  # libraries and sources
GROUP_THREADS = ("gloo", "pt_gloo", "pt_nccl", "nccl")  # how the names of a process group's threads begin
WORKING_SHARE = 0.45  # of a GPU's power limit: a kernel that waits takes less
BUSY_S = 0.4  # of CPU time: a thread that takes less during a watch need not be looked at once more


@dataclass(frozen=True, slots=True)
class Frame:
    """A call on a Python stack; with `--native` also one of C or C++."""

    function: str
    file: str
    line: int

    def __str__(self) -> str:
        """Return `train.py:212, train_step`."""
        return f"{posixpath.basename(self.file)}:{self.line}, {self.short_name}"

    @property
    def short_name(self) -> str:
        """The function's own name, without the classes and functions around it."""
        return self.function.rpartition(">.")[2].rpartition(".")[2] or self.function


@dataclass(frozen=True, slots=True)
class Stack:
    """The stack of a thread, innermost call first."""

    tid: int
    thread: str
    has_gil: bool
    frames: tuple[Frame, ...]

    @property
    def python_frames(self) -> tuple[Frame, ...]:
        """The frames of Python: those of C are there only where they were asked for."""
        return tuple(each for each in self.frames if not OF_C.search(each.file))


@dataclass(frozen=True, slots=True)
class ThreadState:
    """A thread as the kernel sees it: the one-letter state and the kernel function in which it waits ("" = runs)."""

    tid: int
    name: str
    state: str
    wait_channel: str
    cpu_s: float  # user and system, during the watch
    wakes: int | Gap  # voluntary context switches during the watch
    asleep_s: float | Gap  # since it last ran

    @property
    def may_have_run(self) -> bool:
        """Whether it runs, or may have run during the watch: the kernel need not count its switches."""
        return self.state == "R" or self.wakes != 0

    def rests(self, rest_s: float) -> bool:
        """Return whether it has slept for `rest_s`, or through the watch where the kernel does not tell how long."""
        if self.state == "R":
            return False
        if isinstance(self.asleep_s, float):
            return self.asleep_s >= rest_s
        return self.wakes == 0 and self.cpu_s == 0


@dataclass(frozen=True, slots=True)
class OpenFile:
    """A file of a file system that a process has open."""

    fd: int
    path: str
    file_system: str  # its type: nfs4, ext4, fifo, ...; "" where the mount was not found
    is_written: bool
    moved_bytes: int  # by how much its offset moved during the watch


@dataclass(frozen=True, slots=True)
class Connection:
    """A TCP connection of a process, as /proc/net/tcp has it."""

    local: str
    remote: str
    state: str
    send_queue_bytes: int  # not acknowledged or not yet sent, at both ends of the watch
    receive_queue_bytes: int  # arrived and not yet read
    retransmits: int  # of the segment that is not acknowledged

    @property
    def local_host(self) -> str:
        """The address of this end without its port."""
        return self.local.rpartition(":")[0]

    @property
    def remote_host(self) -> str:
        """The address of the other end without its port."""
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
    is_data_worker: bool = False  # torch has named it so (2.6 and newer)
    moved_bytes: int = 0  # read and written by its calls during the watch

    @property
    def main_thread(self) -> ThreadState | None:
        """The main thread; None where the process has ended."""
        return next((thread for thread in self.threads if thread.tid == self.pid), None)

    @property
    def main_stack(self) -> Stack | None:
        """The main thread's stack; None where it was not read."""
        stacks = known_or(self.stacks, ())
        by_tid = next((stack for stack in stacks if stack.tid == self.pid), None)
        return by_tid or next((stack for stack in stacks if stack.thread == "MainThread"), None)

    @property
    def keeps_its_stack(self) -> bool:
        """Whether Python's part of the main stack was read at both ends of the watch, and is the same."""
        first, last = (
            next((stack.python_frames for stack in known_or(stacks, ()) if stack.tid == self.pid), ())
            for stacks in (self.earlier_stacks, self.stacks)
        )
        return bool(first) and first == last

    @property
    def busiest_changing_thread(self) -> ThreadState | None:
        """The busiest thread whose Python stack was read at both ends of the watch, and is another; None for none."""
        first, last = (
            {stack.tid: stack.python_frames for stack in known_or(stacks, ())}
            for stacks in (self.earlier_stacks, self.stacks)
        )
        changing = [each for each in self.threads if first.get(each.tid) and last.get(each.tid)
                    and first[each.tid] != last[each.tid]]  # fmt: skip
        return max(changing, key=lambda each: each.cpu_s, default=None)

    @property
    def native_cpu_s(self) -> float:
        """The CPU time of the threads that run no Python, as those of numpy; 0 where NCCL's spin among them."""
        if isinstance(self.stacks, Gap) or self.uses_nccl:
            return 0.0
        known = {self.pid, *(stack.tid for stack in self.stacks)}
        own = [each for each in self.threads if each.tid not in known and not each.name.startswith(GROUP_THREADS)]
        return sum(each.cpu_s for each in own)

    @property
    def is_in_group(self) -> bool:
        """Whether it has threads of a process group."""
        return any(thread.name.startswith(GROUP_THREADS) for thread in self.threads)

    @property
    def uses_nccl(self) -> bool:
        """Whether it has a process group of NCCL's, whose collectives run on the GPU."""
        return any(thread.name.startswith("pt_nccl") for thread in self.threads)

    @property
    def serves_a_data_loader(self) -> bool:
        """Whether it is a DataLoader's worker, by torch's name for it or by its stack."""
        stack = self.main_stack
        return self.is_data_worker or (
            stack is not None and any(frame.function.endswith("_worker_loop") for frame in stack.frames)
        )

    @property
    def fastest_written_file(self) -> OpenFile | None:
        """The file that it writes fastest; None where it writes none."""
        moving = [each for each in known_or(self.files, ()) if each.is_written and each.moved_bytes > 0]
        return max(moving, key=lambda each: each.moved_bytes, default=None)


@dataclass(frozen=True, slots=True)
class OutputTail:
    """The last lines that a rank wrote, where that is a file."""

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


@dataclass(frozen=True, slots=True)
class Orphan:
    """A process that a rank started and that outlived it."""

    rank: int
    process: Process


@dataclass(frozen=True, slots=True)
class HeldLock:
    """A file lock for which a process of the job waits, and who holds it."""

    waiting_pid: int
    holding_pid: int
    holder: str  # its command line, "" where it can't be seen
    path: str  # "" where it can't be told


@dataclass(frozen=True, slots=True)
class GpuState:
    """A GPU as NVML sees it."""

    nvml_index: int
    uuid: str | Gap
    utilization_percent: float | Gap
    power_w: float | Gap
    power_limit_w: float | Gap
    sm_clock_mhz: float | Gap

    @property
    def works(self) -> bool | None:
        """Whether its power is that of a GPU that computes; None where the power is not known."""
        if isinstance(self.power_w, Gap) or isinstance(self.power_limit_w, Gap):
            return None
        return self.power_w >= WORKING_SHARE * self.power_limit_w


@dataclass(frozen=True, slots=True)
class RasRank:
    """A rank that NCCL's RAS names, and where it runs ("" and 0 where it does not say)."""

    rank: int
    pid: int
    node: str
    what: str  # what sets it apart: "has launched 9 AllReduce operations, others 10"

    def __str__(self) -> str:
        """Return `rank 3 (process 9 on b) has launched 9 AllReduce operations, others 10`."""
        process = f" (process {self.pid} on {self.node})" if self.pid else ""
        return f"rank {self.rank}{process} {self.what}"


@dataclass(frozen=True, slots=True)
class RasAnswer:
    """What NCCL's RAS says of the job: its words, the ranks that it misses, those that it shows behind."""

    address: str
    nccl_version: str
    text: str
    missing: tuple[RasRank, ...]
    behind: tuple[RasRank, ...]
    is_level: bool  # it heard of every rank, and all have launched the same


@dataclass(frozen=True, slots=True)
class RecordedLag:
    """Ranks that the flight recorder's dumps show behind, or in another collective under the same number."""

    ranks: tuple[str, ...]
    what: str


@dataclass(frozen=True, slots=True)
class NodeEvidence:
    """What one node tells."""

    schema_version: int
    host: str
    taken_at: str  # RFC 3339, UTC
    watched_s: float
    rest_s: float  # who has slept for so long at the end of the watch stands
    job: str  # what its ranks have in common: a scheduler's job, a run id, the meeting point, or a launcher's pid
    ranks: tuple[RankProcess, ...]
    orphans: tuple[Orphan, ...]
    locks: tuple[HeldLock, ...]
    gpus: tuple[GpuState, ...] | Gap
    ras: RasAnswer | Gap
    recorded: RecordedLag | Gap
    xid_lines: tuple[str, ...] | Gap  # of the kernel log, which does not tell here how old they are
    not_seen: tuple[str, ...]  # what could not be looked at, with what would allow it

    @property
    def missing_ranks(self) -> tuple[int, ...]:
        """The ranks that should run on this node and that no process carries."""
        numbers = {each.rank for each in self.ranks if isinstance(each.rank, int)}
        size = next((each.local_world_size for each in self.ranks if isinstance(each.local_world_size, int)), 0)
        if not numbers or not 0 < size <= 4096:
            return ()
        first = min(numbers) // size * size
        return tuple(number for number in range(first, first + size) if number not in numbers)
